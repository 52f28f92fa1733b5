"""Chat templates of the shapes that model families have, cut down to what matters: tools, thinking, trimming."""

from __future__ import annotations

CHATML = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)

# Strips earlier thinking, merges results of tools, shows tools: the shape of Qwen3's.
THINKER = """{%- if tools %}<|im_start|>system
# Tools: {{ tools | tojson }}. Answer with <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>
{% endif %}
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{%- if m.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}
<tool_response>
{{ m.content }}
</tool_response>
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>
{% endif %}
{%- elif m.role == 'assistant' %}<|im_start|>assistant
{% set content = m.content %}
{%- if '</think>' in content and loop.index0 < ns.last %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}
{{- content }}
{%- for call in m.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% else %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif %}"""

# Trims contents, and its prompt opens the thinking: the shape of DeepSeek-R1's.
OPENER = """{%- for m in messages %}<|im_start|>{{ m.role }}
{% set content = m.content | trim %}
{%- if '</think>' in content %}{% set content = content.split('</think>')[-1] | trim %}{% endif %}
{{- content }}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}"""

LLAMA3 = """{%- if tools %}Respond in the format {"name": function name, "parameters": dictionary of argument}.
{{ tools | tojson }}{% endif %}
{%- for m in messages %}<|start_header_id|>{{ 'ipython' if m.role == 'tool' else m.role }}<|end_header_id|>

{{ m.content | trim }}<|eot_id|>{% endfor %}"""

MISTRAL = (
    "{{ bos_token }}{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}{% for m in messages %}"
    "{% if m.role == 'tool' %}[TOOL_RESULTS]{{ m.content }}[/TOOL_RESULTS]"
    "{% elif m.tool_calls %}[TOOL_CALLS]{{ m.tool_calls | tojson }}{{ eos_token }}"
    "{% elif m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)

# Tool calls of a form that is not offered: the shape of Qwen3-Coder's.
FOREIGN = CHATML + "{% if tools %}<tool_call><function=name></function></tool_call>{% endif %}"
