"""The rules of the house, held by reading the sources: imports, sizes, mirrors of modules, no duck probing."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "sglang_lite"

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 80
MAX_INSTANCE_ATTRIBUTES = 25

# Each entry: "path" or "path:Name", the number it has now, and the reason. An entry may shrink or go; it never grows.
LONG_FILES: dict[str, tuple[int, str]] = {}
LONG_FUNCTIONS: dict[str, tuple[int, str]] = {
    "sglang_lite/lang/api.py:gen": (90, "arguments, each under the name that users know, one a line with its own"),
}
LARGE_CLASSES: dict[str, tuple[int, str]] = {
    "sglang_lite/runtime/server/config.py:ServerConfig": (29, "settings, each under the name that users know"),
    "sglang_lite/runtime/config.py:EngineConfig": (38, "settings, each under the name that users know"),
    "sglang_lite/runtime/server/responses_input.py:ResponsesBody": (
        42,
        "fields of a request, each under the name that clients send",
    ),
    "sglang_lite/runtime/server/openai_schemas.py:SamplingBody": (
        28,
        "fields of a request, each under the name that clients send",
    ),
    "sglang_lite/lang/ir.py:SglGen": (26, "the arguments of gen, each under the name that users know"),
    "sglang_lite/sampling_params.py:SamplingParams": (28, "parameters, each under the name that users know"),
}

# Modules without a test file of their own, each with the test file that covers it (below `tests/`).
WITHOUT_MIRROR: dict[str, str] = {
    "sglang_lite/chat_formats/calls.py": "chat_formats/test_adapt.py",
    "sglang_lite/chat_formats/splitting.py": "lang/test_reasoning.py",
    "sglang_lite/chat_formats/thinking.py": "chat_formats/test_recognise.py",
    "sglang_lite/compat/aliases.py": "compat/test_finder.py",
    "sglang_lite/compat/missing.py": "compat/test_finder.py",
    "sglang_lite/kernels/cpu/parallel_attention.py": "kernels/cpu/test_paged_attention.py",
    "sglang_lite/kernels/reference/paged_attention.py": "kernels/cpu/test_paged_attention.py",
    "sglang_lite/lang/backends/hosted/asking.py": "lang/backends/hosted/test_openai_api.py",
    "sglang_lite/lang/backends/hosted/backend.py": "lang/backends/hosted/test_program.py",
    "sglang_lite/lang/backends/hosted/branch.py": "lang/backends/hosted/test_program.py",
    "sglang_lite/lang/backends/hosted/checker.py": "lang/backends/hosted/test_abilities.py",
    "sglang_lite/lang/backends/hosted/contents.py": "lang/backends/hosted/test_program.py",
    "sglang_lite/lang/backends/hosted/messages.py": "lang/backends/hosted/test_tool_turns.py",
    "sglang_lite/lang/chat_templates.py": "lang/backends/test_strict.py",
    "sglang_lite/lang/backends/scripted_branch.py": "lang/backends/test_scripted_program.py",
    "sglang_lite/lang/backends/replay_match.py": "lang/backends/test_replay.py",
    "sglang_lite/launch_server.py": "cli/test_serve.py",
    "sglang_lite/lang/tools/values.py": "lang/tools/test_gens.py",
    "sglang_lite/runtime/attention/base.py": "runtime/attention/test_backends.py",
    "sglang_lite/runtime/attention/cpu.py": "runtime/attention/test_backends.py",
    "sglang_lite/runtime/attention/flashinfer_lane.py": "runtime/attention/test_flashinfer.py",
    "sglang_lite/runtime/attention/torch_ref.py": "runtime/attention/test_backends.py",
    "sglang_lite/runtime/execution/triton_sampling.py": "kernels/triton/test_device_sampler.py",
    "sglang_lite/runtime/model/decoder.py": "runtime/model/test_architectures.py",
    "sglang_lite/runtime/model/gemma2.py": "runtime/model/test_architectures.py",
    "sglang_lite/runtime/model/layers.py": "runtime/model/test_architectures.py",
    "sglang_lite/runtime/model/linear.py": "runtime/model/test_weights.py",
    "sglang_lite/runtime/model/tensors.py": "runtime/model/test_weights.py",
    "sglang_lite/runtime/model/weight_names.py": "runtime/model/test_architectures.py",
    "sglang_lite/runtime/server/asgi.py": "runtime/server/test_app.py",
    "sglang_lite/grammar/json_schema/context.py": "grammar/json_schema/test_normalise.py",
    "sglang_lite/grammar/json_schema/writer.py": "grammar/json_schema/test_emit.py",
    "sglang_lite/runtime/server/answer_reader.py": "runtime/server/test_chat_run.py",
    "sglang_lite/runtime/server/openai_messages.py": "runtime/server/test_openai_chat.py",
    "sglang_lite/runtime/server/openai_tools.py": "runtime/server/test_chat_run.py",
    "sglang_lite/runtime/server/responses_input.py": "runtime/server/test_responses.py",
    "sglang_lite/runtime/server/responses_stream.py": "runtime/server/test_responses.py",
    "sglang_lite/runtime/server/anthropic_input.py": "runtime/server/test_anthropic_messages.py",
    "sglang_lite/runtime/server/engine_port.py": "runtime/server/test_app.py",
    "sglang_lite/runtime/server/openai_replies.py": "runtime/server/test_openai_chat.py",
    "sglang_lite/runtime/engine/async_calls.py": "runtime/engine/test_engine.py",
    "sglang_lite/sampling_params.py": "test_request_tree.py",
    "sglang_lite/runtime/server/ipc/messages.py": "runtime/server/ipc/test_channel.py",
    "sglang_lite/runtime/server/ipc/worker.py": "runtime/server/ipc/test_client.py",
    "sglang_lite/runtime/server/service.py": "runtime/server/test_native.py",
    "sglang_lite/kernels/cpu/llama_step.py": "runtime/execution/test_native_step.py",
    "sglang_lite/kernels/reference/int8_heads.py": "kernels/cpu/test_int8_heads.py",
    "sglang_lite/kernels/reference/linear.py": "kernels/cpu/test_linear_q4_1.py",
    "sglang_lite/kernels/reference/norm.py": "kernels/cpu/test_norm.py",
    "sglang_lite/kernels/reference/rope.py": "kernels/cpu/test_rope.py",
    "sglang_lite/kernels/reference/silu.py": "kernels/cpu/test_silu.py",
    "sglang_lite/kernels/cpu/store_kv.py": "kernels/cpu/test_paged_attention.py",
    "sglang_lite/kernels/reference/store_kv.py": "kernels/cpu/test_paged_attention.py",
    "sglang_lite/kernels/cpu/warmup.py": "kernels/cpu/test_jit.py",
    "sglang_lite/kernels/reference/sampling.py": "kernels/test_sampling.py",
    "sglang_lite/kernels/reference/cascade_attention.py": "kernels/triton/test_decode_attention.py",
    "sglang_lite/kernels/reference/decode_attention.py": "kernels/triton/test_decode_attention.py",
    "sglang_lite/kernels/reference/extend_attention.py": "kernels/triton/test_decode_attention.py",
    "sglang_lite/kernels/triton/attention_block.py": "kernels/triton/test_decode_attention.py",
    "sglang_lite/kernels/triton/cascade_attention.py": "kernels/triton/test_decode_attention.py",
    "sglang_lite/kernels/triton/extend_attention.py": "kernels/triton/test_decode_attention.py",
    "sglang_lite/kernels/triton/split_work.py": "kernels/triton/test_decode_attention.py",
    "sglang_lite/kernels/triton/store_kv.py": "kernels/triton/test_decode_attention.py",
    "sglang_lite/kernels/reference/penalties.py": "kernels/triton/test_penalties.py",
    "sglang_lite/kernels/reference/logprobs.py": "kernels/triton/test_logprobs.py",
    "sglang_lite/kernels/reference/linear_q4.py": "kernels/triton/test_linear_q4.py",
    "sglang_lite/kernels/triton/sampling_search.py": "kernels/triton/test_sampling.py",
    "sglang_lite/kernels/triton/compile_case.py": "kernels/triton/test_catalogue.py",
    "sglang_lite/kernels/reference/token_mask.py": "kernels/cpu/test_token_mask.py",
    "sglang_lite/runtime/engine/build.py": "runtime/engine/test_engine.py",
    "sglang_lite/runtime/engine/device_executor.py": "runtime/engine/test_device_engine.py",
    "sglang_lite/runtime/engine/device_memory.py": "runtime/engine/test_memory_plan.py",
    "sglang_lite/runtime/engine/device_parts.py": "runtime/engine/test_device_engine.py",
    "sglang_lite/runtime/engine/model_sizes.py": "runtime/engine/test_memory_plan.py",
    "sglang_lite/runtime/model/gpu.py": "kernels/triton/test_model.py",
    "sglang_lite/runtime/model/linear_q4.py": "runtime/model/test_model_form.py",
    "sglang_lite/runtime/model/q4_kernels.py": "kernels/triton/test_model.py",
    "sglang_lite/runtime/engine/reply.py": "runtime/engine/test_engine.py",
    "sglang_lite/runtime/execution/answers.py": "runtime/execution/test_model_runner.py",
    "sglang_lite/runtime/executor/gen.py": "runtime/executor/test_program.py",
    "sglang_lite/runtime/executor/ports.py": "runtime/executor/test_program.py",
    "sglang_lite/runtime/executor/select.py": "runtime/executor/test_program.py",
    "sglang_lite/runtime/text/folder_vocabulary.py": "runtime/text/test_tokenizer.py",
    "sglang_lite/runtime/text/gguf_vocabulary.py": "runtime/text/test_tokenizer.py",
    "sglang_lite/runtime/text/pre_tokenizers.py": "runtime/text/test_tokenizer.py",
    "sglang_lite/runtime/text/template_filters.py": "runtime/text/test_template_sandbox.py",
    "sglang_lite/runtime/text/template_limits.py": "runtime/text/test_template_sandbox.py",
    "sglang_lite/runtime/text/vocabulary.py": "runtime/text/test_tokenizer.py",
}

# Places where an object of unknown type is met, so that asking it what it has is the only way.
MAY_PROBE: dict[str, str] = {
    "sglang_lite/cli/run.py": "a module of the user: it may have a main()",
    "sglang_lite/kernels/cpu/threads.py": "functions of the platform and of a native library, there or not",
    "sglang_lite/lang/backends/hosted/anthropic_api.py": "counts that came to the API with its versions",
    "sglang_lite/lang/backends/hosted/litellm_api.py": "a chat template may be a name, or an object that has one",
    "sglang_lite/lang/backends/hosted/openai_api.py": "answers of servers that speak OpenAI's API, each as far as it goes",
    "sglang_lite/lang/backends/hosted/retry.py": "errors of three clients, which share no class",
    "sglang_lite/lang/backends/registry.py": "SGLang's Runtime objects carry their backend as `endpoint`",
    "sglang_lite/lang/runner.py": "a body may be any callable; a partial has no name",
    "sglang_lite/lang/sgl_function.py": "a body may be any callable; a partial has no name",
    "sglang_lite/lang/typed/limits.py": "metadata of an Annotated: objects of any library, with and without bounds",
    "sglang_lite/lang/typed/objects.py": "pydantic's errors list their faults; pydantic is optional",
    "sglang_lite/lang/typed/of_type.py": "a type may be a pydantic model or a NamedTuple; pydantic is optional",
    "sglang_lite/lang/typed/plain.py": "a value may be a pydantic model; pydantic is optional",
    "sglang_lite/runtime/engine/spans.py": "methods are timed by their names, where an object has them",
    "sglang_lite/runtime/engine/step_spans.py": "parts of runners and models of several kinds, each as far as it has them",
    "sglang_lite/runtime/text/folder_vocabulary.py": "tokenizers of transformers, with and without a fast half",
    "sglang_lite/runtime/text/template_filters.py": "Jinja marks its filters by attributes",
    "sglang_lite/runtime/text/template_sandbox.py": "callables that a template reaches",
}

# Modules that import ours inside a function, with the reason. Never to dodge a cycle.
MAY_IMPORT_LATE: dict[str, str] = {
    "sglang_lite/cli/grammar.py": "Numba is loaded when a grammar is compiled, after the folder of its kernels is named",
    "sglang_lite/__init__.py": "`import sglang_lite` must not load the runtime; the lazy Engine does",
    "sglang_lite/runtime/model/loader.py": "transformers is heavy: its modules are imported only where a model needs them",
    "sglang_lite/cli/plan.py": "torch: only where a model is planned, not for each command's help",
    "sglang_lite/cli/profile.py": "torch: only where something is profiled, not for each command's help",
    "sglang_lite/cli/serve.py": "torch and the web framework: only where a server starts, not for each command's help",
    "sglang_lite/cli/warmup.py": "torch: only where a machine is warmed, not for each command's help",
    "sglang_lite/runtime_process.py": "the tokenizer's modules: only in a process that asks for it",
    "sglang_lite/runtime/engine/warm.py": "Numba's cache folder must be named before the kernels are imported",
    "sglang_lite/lang/typed/describe.py": "the modules of JSON Schema: only where a type is described",
    "sglang_lite/runtime/engine/build.py": "Numba's cache folder must be named before the kernels are imported",
    "sglang_lite/runtime/engine/model_executor.py": "Numba's cache folder must be named before the kernels are imported",
    "sglang_lite/runtime/engine/device_parts.py": "Triton and CUDA: only where there is a GPU",
    "sglang_lite/runtime/model/device_ops.py": "Triton: only where tensors lie on a GPU",
    "sglang_lite/runtime/attention/flashinfer.py": "Triton: only where keys and values lie on a GPU",
    "sglang_lite/runtime/engine/step_spans.py": "Numba's cache folder must be named before the kernels are imported",
    "sglang_lite/runtime/engine/tree_check.py": "Numba and its compiling: only when a grammar is checked",
    "sglang_lite/runtime/server/ipc/worker.py": "torch: after the channel is there, and only in that process",
    "sglang_lite/runtime/execution/device_runner.py": "Triton: only where logits lie on a GPU",
    "sglang_lite/runtime/execution/sampler.py": "Numba's cache folder must be named before the kernels are imported",
    "sglang_lite/runtime/execution/grammar_backend.py": "Numba and its compiling: only when a grammar is used",
}

HEAVY = (
    "torch",
    "triton",
    "numba",
    "numpy",
    "transformers",
    "tokenizers",
    "gguf",
    "fastapi",
    "pydantic",
    "uvicorn",
    "jinja2",
)


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def functions_in(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def over(cap: int, sizes: dict[str, int], excused: dict[str, tuple[int, str]]) -> list[str]:
    """What is over the cap and not excused at this size, and what is excused without need."""
    faults = [
        f"{name}: {size}, at most {excused.get(name, (cap,))[0]}"
        for name, size in sizes.items()
        if size > excused.get(name, (cap,))[0]
    ]
    faults += [f"{name}: excused without need, take the entry out" for name in excused if sizes.get(name, 0) <= cap]
    return faults


def instance_attributes(node: ast.ClassDef) -> set[str]:
    """Names declared as fields in the class body or assigned on `self` in its methods."""
    names = {
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.target, ast.Name)
        and "ClassVar" not in ast.unparse(item.annotation)
    }
    for method in node.body:
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            names |= {
                part.attr
                for part in ast.walk(method)
                if isinstance(part, ast.Attribute)
                and isinstance(part.ctx, ast.Store)
                and isinstance(part.value, ast.Name)
                and part.value.id == "self"
            }
    return names


def test_import_rules_hold() -> None:
    """The contracts of pyproject.toml, for those who only run pytest."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-cache",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = f"import sys, sglang_lite, sglang_lite.lang; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_package_takes_under_300_ms() -> None:
    """Processor time, the best of three: what else the machine does decides nothing."""
    code = "import time; t = time.process_time(); import sglang_lite; print(time.process_time() - t)"
    command = [sys.executable, "-c", code]
    best_s = min(float(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout) for _ in range(3))
    assert best_s < 0.3


def test_no_file_is_longer_than_the_cap() -> None:
    files = python_files("sglang_lite", "tests", "examples", "benchmarks")
    sizes = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert over(MAX_FILE_LINES, sizes, LONG_FILES) == []


def test_no_function_is_longer_than_the_cap() -> None:
    sizes: dict[str, int] = {}
    for path in python_files("sglang_lite", "examples", "benchmarks"):
        for node in functions_in(tree_of(path)):
            key = f"{name_of(path)}:{node.name}"
            assert node.end_lineno is not None
            sizes[key] = max(sizes.get(key, 0), node.end_lineno - node.lineno + 1)
    assert over(MAX_FUNCTION_LINES, sizes, LONG_FUNCTIONS) == []


def test_no_class_has_more_attributes_than_the_cap() -> None:
    sizes = {
        f"{name_of(path)}:{node.name}": len(instance_attributes(node))
        for path in python_files("sglang_lite", "examples", "benchmarks")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef)
    }
    assert over(MAX_INSTANCE_ATTRIBUTES, sizes, LARGE_CLASSES) == []


def test_every_module_has_its_test_file() -> None:
    faults: list[str] = []
    for path in python_files("sglang_lite"):
        if path.name == "__init__.py":
            continue
        inside = path.relative_to(PACKAGE)
        mirror = ROOT / "tests" / inside.parent / f"test_{inside.name}"
        excused = name_of(path) in WITHOUT_MIRROR
        if mirror.exists() == excused:
            faults.append(f"{name_of(path)}: {'excused without need' if excused else f'no {name_of(mirror)}'}")
    faults += [f"{name}: excused, but not there" for name in WITHOUT_MIRROR if not (ROOT / name).exists()]
    faults += [
        f"{name}: covered by no {test}" for name, test in WITHOUT_MIRROR.items() if not (ROOT / "tests" / test).exists()
    ]
    assert faults == []


def test_package_files_of_runtime_and_kernels_hold_only_a_docstring() -> None:
    """Python runs a parent package on every import below it, which the import rules do not see."""
    faults = [
        name_of(path)
        for path in python_files("sglang_lite/runtime", "sglang_lite/kernels")
        if path.name == "__init__.py" and len(tree_of(path).body) != 1
    ]
    assert faults == []


def test_objects_are_not_probed_for_what_they_have() -> None:
    """`hasattr` and `getattr` with a default hide misspelt names from the type checker."""
    faults: list[str] = []
    used: set[str] = set()
    for path in python_files("sglang_lite"):
        for node in ast.walk(tree_of(path)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            if node.func.id == "hasattr" or (node.func.id == "getattr" and len(node.args) == 3):
                used.add(name_of(path))
                if name_of(path) not in MAY_PROBE:
                    faults.append(f"{name_of(path)}:{node.lineno}: {ast.unparse(node)}")
    assert faults == []
    assert set(MAY_PROBE) <= used, "excused without need, take the entry out"


def test_our_own_modules_are_imported_at_the_top() -> None:
    faults: list[str] = []
    used: set[str] = set()
    for path in python_files("sglang_lite"):
        for function in functions_in(tree_of(path)):
            for node in ast.walk(function):
                if isinstance(node, ast.ImportFrom):
                    modules = [node.module or ""]
                elif isinstance(node, ast.Import):
                    modules = [alias.name for alias in node.names]
                else:
                    continue
                if any(module.split(".")[0] == "sglang_lite" for module in modules):
                    used.add(name_of(path))
                    if name_of(path) not in MAY_IMPORT_LATE:
                        faults.append(f"{name_of(path)}:{node.lineno}: {ast.unparse(node)}")
    assert faults == []
    assert set(MAY_IMPORT_LATE) <= used, "excused without need, take the entry out"


def test_every_package_stands_in_the_architecture_page() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    packages = [
        path.parent.relative_to(PACKAGE).as_posix()
        for path in python_files("sglang_lite")
        if path.name == "__init__.py"
    ]
    assert [name for name in packages if name != "." and f"`{name}/`" not in page] == []


def test_every_folder_with_modules_is_a_package() -> None:
    """setuptools leaves a folder without `__init__.py` out of the wheel without a word."""
    folders = {path.parent for path in python_files("sglang_lite")}
    assert [name_of(path) for path in sorted(folders) if not (path / "__init__.py").exists()] == []
