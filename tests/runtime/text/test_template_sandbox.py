"""Hostile templates end with a clean error within their bounds; ordinary ones work as in transformers."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.runtime.text.chat import ChatTemplate
from sglang_lite.runtime.text.template_limits import RenderLimits

MESSAGES = [{"role": "user", "content": "<b>Zoë & 'co'</b>"}, {"role": "assistant", "content": "ja"}]
TOOLS = [{"name": "f", "parameters": {"x": ["é", 1.5, None, True]}}]
DOUBLING = "{% set ns = namespace(x='aaaaaaaaaa', l=[1], n=3) %}{% for i in range(60) %}"
GROWN = "{% set x = 'a' * 1000000 %}"

HOSTILE = {
    "nested loops": "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
    "wide range": "{% for a in range(10000000000) %}{% endfor %}",
    "recursive macro": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "endless macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "endless block": "{% block a %}{{ self.a() }}{% endblock %}",
    "repeat": "{{ 'a' * 1000000000 }}",
    "repeat a list": "{{ [1] * 1000000000 }}",
    "concat": DOUBLING + "{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "add": DOUBLING + "{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
    "capture": DOUBLING + "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
    "literal text": "{% for a in range(99999) %}" + "x" * 10000 + "{% endfor %}",
    "shared lists": DOUBLING + "{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
    "shared dicts": DOUBLING + "{% set ns.l = {'a': ns.l, 'b': ns.l} %}{% endfor %}{{ ns.l == ns.l }}",
    "shared calls": DOUBLING + "{% set ns.l = dict(a=ns.l, b=ns.l) %}{% endfor %}{{ ns.l | tojson }}",
    "cycle": "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}",
    "power": "{{ 9 ** 99 ** 9 }}",
    "power of a power": DOUBLING + "{% set ns.n = ns.n * ns.n %}{% endfor %}",
    "percent width": "{{ '%1000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (1000000000, 1) }}",
    "percent many": GROWN + "{{ ('%(a)s' * 1000) % {'a': x} }}",
    "format filter": "{{ '%1000000000d' | format(1) }}",
    "format width": "{{ '{:1000000000}'.format(1) }}",
    "format nested": "{{ '{:{}}'.format(1, 1000000000) }}",
    "format many": GROWN + "{{ ('{0}' * 1000).format(x) }}",
    "ljust": "{{ 'a'.ljust(1000000000) }}",
    "zfill": "{{ 'a'.zfill(1000000000) }}",
    "expandtabs": "{{ '\t'.expandtabs(1000000000) }}",
    "bytes": "{{ (1).to_bytes(1000000000, 'big') }}",
    "round": "{{ 1.5 | round(1000000000, 'ceil') }}",
    "center": "{{ 'a' | center(1000000000) }}",
    "batch": "{{ [1] | batch(1000000000, 0) | list }}",
    "indent": "{{ 'a\nb' | indent(1000000000, true) }}",
    "json indent": "{{ messages | tojson(indent=1000000000) }}",
    "replace filter": GROWN + "{{ x | replace('a', x) }}",
    "replace method": GROWN + "{{ x.replace('', x) }}",
    "join filter": GROWN + "{{ x | join(x) }}",
    "join method": GROWN + "{{ x.join(x) }}",
    "map": GROWN + "{{ range(100000) | map('replace', '', x) | list | length }}",
    "map default": "{% set b = [1] * 1000 %}{{ [''] * 1000 | map('default', b, true) | list }}",
    "strftime": "{{ strftime_now('%999999999d') }}",
    "deep source": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "long source": "x" * 300_000,
    "class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ messages.__init__.__globals__ }}",
    "cycler": "{{ cycler.__init__.__globals__.os.popen('touch MARK').read() }}",
    "joiner": "{{ joiner.__init__.__globals__.os.system('touch MARK') }}",
    "lipsum": "{{ lipsum.__globals__['os'].system('touch MARK') }}",
    "helper": "{{ raise_exception.__globals__['__builtins__']['open']('MARK', 'w') }}",
    "attr filter": "{{ (messages | attr('__class__')).__base__.__subclasses__() }}",
    "map attribute": "{{ messages | map(attribute='__class__') | map(attribute='__mro__') | list | first | first | first }}",
    "format attribute": "{{ '{0.__class__.__mro__}'.format(1).x.y }}",
    "namespace": "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "append": "{% set _ = messages.append({}) %}",
    "update": "{% set _ = messages[0].update(content='evil') %}",
    "item": "{% set messages[0].content = 'evil' %}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}{{ os.getcwd() }}",
    "syntax": "{% for %}",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_fails_that_request_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C96: one clean error, nothing run, nothing changed."""
    monkeypatch.chdir(tmp_path)
    messages = [dict(message) for message in MESSAGES]
    with pytest.raises(RequestError, match="chat template"):
        ChatTemplate(HOSTILE[name]).render(messages)
    assert messages == MESSAGES
    assert list(tmp_path.iterdir()) == []


def test_the_clock_stops_what_the_counters_let_pass() -> None:
    limits = RenderLimits(cpu_seconds=0.05)
    source = "{% for a in range(100000) %}{% set x = messages | tojson | length %}{% endfor %}"
    with pytest.raises(RequestError, match=r"more than 0\.05 s"):
        ChatTemplate(source, limits=limits).render(MESSAGES * 20)


def render_by_transformers(source: str, **variables: Any) -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    tools = variables.pop("tools", None)
    rendered, _ = render_jinja_template(
        [MESSAGES], tools=tools, chat_template=source, add_generation_prompt=True, **variables
    )
    return rendered[0]


ORDINARY = {
    "tojson": "{{ messages | tojson }}{{ tools | tojson(indent=2) }}{{ tools[0] | tojson(sort_keys=true) }}",
    "no tools": "{% if documents is none %}none{% endif %}{% if not missing %}undefined{% endif %}{{ missing }}",
    "blocks": "{% for m in messages %}\n    {% if loop.first %}\n  first\n    {% endif %}\n{{ m.content }}\n{% endfor %}\nend\n",
    "loop": "{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}{{ loop.revindex }}{{ loop.previtem is defined }}"
    "{% if loop.index == 1 %}{{ loop.nextitem.role }}{% continue %}{% endif %}x{% break %}{% else %}empty{% endfor %}",
    "items": "{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in messages[0] | items %}{{ k }}{% endfor %}",
    "namespace": "{% set ns = namespace(found=false, n=0) %}{% for m in messages %}{% set ns.found = true %}"
    "{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.found }}{{ ns.n }}",
    "filters": "{{ messages | map(attribute='role') | join(', ') }}{{ ' x ' | trim | upper }}{{ 'a-b' | replace('-', '+') }}"
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ [3, 1] | sort | first }}{{ 'ab' | list }}"
    "{{ messages | rejectattr('role', 'equalto', 'user') | map(attribute='content') | list }}{{ '7' | int + 1 }}"
    "{{ 'x\ny' | indent(2) }}{{ '%s=%d' | format('a', 3) }}{{ none | default('d', true) }}{{ 'a' | string ~ 1 ~ none }}",
    "methods": "{{ 'a</think>b'.split('</think>')[-1].lstrip('\\n') }}{{ 'abc'.startswith('a') }}{{ '{}-{:>5}'.format(1, 'x') }}"
    "{{ '-'.join(['a', 'b']) }}{{ messages[0].get('tool_calls', 'none') }}{{ 'Abc'.lower().replace('a', 'A') }}",
    "slices": "{{ messages[1:] | length }}{{ messages[::-1][0].role }}{{ 'abc'[:-1] }}{{ ([1] + [2])[-1] }}{{ (1, 2)[0] }}",
    "macro": "{% macro show(m, sep=': ') %}{{ m.role ~ sep ~ m.content }}{% endmacro %}{{ show(messages[0]) }}{{ show(messages[1], sep='=') }}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "set block": "{% set x %}a{{ 1 + 1 }}b{% endset %}{{ x }}{{ x | length }}{{ 2 * 'ab' }}{{ 7 % 3 }}{{ 2 ** 3 }}{{ 'a%sb' % 'X' }}",
    "conditional": "{{ 'yes' if messages[0].role == 'user' else 'no' }}{% for m in messages if m.role != 'user' %}{{ m.role }}{% endfor %}",
    "recursive": "{% for t in [[1, [2]], 3] recursive %}{% if t is iterable %}{{ loop(t) }}{% else %}{{ t }}{% endif %}{% endfor %}",
    "tests": "{{ messages is sequence }}{{ 'a' is string }}{{ messages[0] is mapping }}{{ 1 is defined }}{{ tools is not none }}",
    "cycler": "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}",
}  # fmt: skip


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_template_renders_as_in_transformers(name: str) -> None:
    tools = TOOLS if name == "tojson" else None
    expected = render_by_transformers(ORDINARY[name], tools=tools)
    assert ChatTemplate(ORDINARY[name]).render(MESSAGES, True, {"tools": tools}) == expected


def test_json_is_not_escaped_for_html() -> None:
    text = ChatTemplate("{{ messages[0] | tojson }}").render(MESSAGES)
    assert text == json.dumps(MESSAGES[0], ensure_ascii=False)
    assert "Zoë & 'co'" in text


def test_the_date_is_todays() -> None:
    before = datetime.datetime.now().strftime("%d %b %Y")
    text = ChatTemplate("{{ strftime_now('%d %b %Y') }}").render(MESSAGES)
    assert text in (before, datetime.datetime.now().strftime("%d %b %Y"))


def test_a_long_honest_dialogue_is_far_from_the_limits() -> None:
    messages = [{"role": "user", "content": "word " * 200}] * 2000
    source = (
        "{% for m in messages %}{% if loop.index0 == messages | length - 1 %}last{% endif %}"
        "{{ '<|im_start|>' + m['role'] ~ '\n' + m['content'] | trim + '<|im_end|>' }}{% endfor %}"
    )
    limits = RenderLimits(steps=100_000, chars=3_000_000, cpu_seconds=60)
    assert ChatTemplate(source, limits=limits).render(messages).count("<|im_start|>") == 2000
