"""Programs in SGLang's style run unchanged; the shapes are those of its examples, the texts are ours."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglang_lite.compat import uninstall
from sglang_lite.compat.__main__ import main
from sglang_lite.lang import set_default_backend

HEADER = """
import sglang as sgl
from sglang import assistant, assistant_begin, function, gen, select, system, user

sgl.set_default_backend(sgl.RuntimeEndpoint("http://localhost:30000"))
"""

FEW_SHOT_SELECT = """
@sgl.function
def tool_use(s, question):
    s += "Q: How many legs have two spiders?\\nTool: calculator\\n"
    s += "Q: " + question + "\\nTool: " + sgl.select("tool", choices=["calculator", "search engine"])
    if s["tool"] == "calculator":
        s += "\\nExpression:" + sgl.gen("expression", stop="\\n")
    else:
        s += "\\nQuery:" + sgl.gen("query", stop="\\n")

state = tool_use.run("How high is the Eiger?")
print(state["tool"], "query" in state, "expression" in state)
print(state.get_meta_info("tool")["normalized_prompt_logprobs"])
"""

FORKS = """
@function
def tips(s):
    s += system("You are brief.")
    s += user("Give two tips.")
    forks = s.fork(2)
    for i, f in enumerate(forks):
        f += assistant(f"Tip {i}: " + gen("tip", max_tokens=8, stop=["\\n"]))
    s += assistant("1. " + forks[0]["tip"] + "\\n2. " + forks[1]["tip"] + "\\nSo: " + gen("summary"))

state = tips.run()
for m in state.messages():
    print(m["role"], ":", m["content"])
"""

REGEX = r"""
REGEX = r'\{"name": "\w+"\}'

@sgl.function
def field(s):
    s += "As JSON: " + sgl.gen("json", max_tokens=64, regex=sgl.lang.ir.REGEX_INT)
    with s.var_scope("line"):
        s += "{" + sgl.gen("b", dtype=bool) + ", " + sgl.gen_int("i") + "}"

print(field.run()["line"])
"""

BATCH_AND_STREAM = """
@sgl.function
def qa(s, question):
    s += user(question)
    s += assistant(gen("answer", max_tokens=32))

states = qa.run_batch([{"question": "Where?"}, {"question": "When?"}], temperature=0, progress_bar=False, num_threads=8)
print([s["answer"] for s in states])
state = qa.run(question="Who?", stream=True)
for out in state.text_iter("answer"):
    print(out, end="")
print()
"""

CHOICES = """
@sgl.function
def capital(s, method):
    s += "The capital of Peru is " + sgl.gen("city", choices=["Lima", "Quito"], choices_method=method)

for method in (sgl.token_length_normalized, sgl.greedy_token_selection, sgl.unconditional_likelihood_normalized):
    state = capital.run(method)
    print(state["city"], len(state.get_meta_info("city")["input_token_logprobs"]))
"""

COT = """
@sgl.function
def cot(s, question):
    s += sgl.user(question)
    s += sgl.assistant_begin()
    step = s.fork(1)[0]
    step += sgl.gen("probe", max_tokens=0, return_logprob=True, top_logprobs_num=3)
    forks = s.fork(10)
    for i, f in enumerate(forks):
        f += f"{i}:" + sgl.gen("answer", temperature=0, max_tokens=8)
    forks.join()

state = cot.run("Why?")
print(len(state["answer"]), repr(state).startswith("ProgramState("))
"""

SCRIPTS = {
    "few_shot_select": (FEW_SHOT_SELECT, "calculator False True\n[-0.1, -1.0]\n"),
    "forks": (
        FORKS,
        "system : You are brief.\nuser : Give two tips.\nassistant : 1. <tip>\n2. <tip>\nSo: <summary>\n",
    ),
    "regex": (REGEX, "{True, 0}\n"),
    "batch_and_stream": (BATCH_AND_STREAM, "['<answer>', '<answer>']\n<answer>\n"),
    "choices": (CHOICES, "Lima 2\nLima 2\nLima 2\n"),
    "cot": (COT, "10 True\n"),
}


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    yield
    uninstall()
    set_default_backend(None)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_in_sglangs_style_runs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, output = SCRIPTS[name]
    script = tmp_path / "script.py"
    script.write_text(HEADER + code, encoding="utf-8")
    assert main(["--backend", "scripted", str(script)]) == 0
    assert capsys.readouterr().out == output


def test_a_benchmark_script_finds_its_helpers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "bench.py"
    script.write_text(
        """
import argparse, json
import sglang as sgl
from sglang.lang.api import set_default_backend
from sglang.test.test_utils import add_common_sglang_args_and_parse, select_sglang_backend
from sglang.utils import dump_state_text, read_jsonl

@sgl.function
def f(s, text):
    s += text + sgl.gen("x", max_tokens=4)

def main(args):
    rows = [{"text": row["text"]} for row in read_jsonl(args.data)][: args.num]
    set_default_backend(select_sglang_backend(args))
    states = f.run_batch(rows, num_threads=args.parallel)
    dump_state_text(args.result_file, states)
    print(len(states), args.backend)

parser = argparse.ArgumentParser()
parser.add_argument("--data")
parser.add_argument("--num", type=int, default=2)
main(add_common_sglang_args_and_parse(parser))
""",
        encoding="utf-8",
    )
    data, result = tmp_path / "data.jsonl", tmp_path / "result.txt"
    data.write_text("".join(json.dumps({"text": f"row {i} "}) + "\n" for i in range(3)), encoding="utf-8")
    arguments = ["--data", str(data), "--backend", "srt", "--result-file", str(result)]
    assert main(["--backend", "scripted", str(script), *arguments]) == 0
    assert capsys.readouterr().out == "2 srt\n"
    assert result.read_text(encoding="utf-8") == "==== 0 ====\nrow 0 <x>\n\n==== 1 ====\nrow 1 <x>\n\n"


def test_code_and_modules_run_with_their_own_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["--backend", "scripted", "-c", "import sys, sglang; print(sys.argv, sglang.gen)", "--own"]) == 0
    assert capsys.readouterr().out.startswith("['-c', '--own'] <function gen")
    (tmp_path / "a_module_of_ours.py").write_text("import sys, sglang\nprint(sys.argv[1:])\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["-m", "a_module_of_ours", "--own", "1"]) == 0
    assert capsys.readouterr().out == "['--own', '1']\n"


def test_a_report_lists_what_is_lacking(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sglang as sgl\nb = sgl.ServerArgs()\n", encoding="utf-8")
    assert main(["--report", str(script)]) == 0
    assert capsys.readouterr().out.startswith("line 2: sglang.ServerArgs: ")
    assert main(["--report", str(tmp_path / "none.py")]) == 1


def test_without_a_script_it_says_what_it_takes() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--backend", "scripted"])
    assert ended.value.code == 2


def test_it_runs_as_a_command(tmp_path: Path) -> None:
    """A process of its own: the alias is there, and no model or server is loaded for it."""
    done = subprocess.run(
        [sys.executable, "-m", "sglang_lite.compat", "-c", "import sglang; print(sglang.select.__module__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("sglang_lite.lang.api\n", "")
