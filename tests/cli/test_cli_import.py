"""`yrnode import`: the file on stdout, the rest on stderr, and how it ends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from yrnode.cli.main import main

SCRIPTS = Path(__file__).parents[1] / "config/scripts"
ONE = sorted(map(str, (SCRIPTS / "a3").glob("*.sh")))


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]):
    def run(*args: object) -> tuple[int, str, str]:
        code = main([str(a) for a in args])
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


def test_all_read_is_0_and_the_file_passes_check(said, tmp_path: Path) -> None:
    code, out, err = said("import", *ONE)
    assert code == 0
    assert {line.split(":")[0] for line in err.splitlines()} == {"dropped"}
    file = tmp_path / "cluster.yaml"
    file.write_text(out)
    assert said("check", "--config", file)[0] == 0


def test_something_open_is_1(said, tmp_path: Path) -> None:
    script = tmp_path / "x.sh"
    script.write_text("ulimit -l unlimited\nvllm serve /m --port 1\n")
    code, out, err = said("import", script)
    assert code == 1
    assert out.startswith("cluster: vllm\n")
    assert f"not read: {script}:1: ulimit -l unlimited: yrnode has no place for this command" in err.splitlines()
    assert any(line.startswith(f"open: {script}:2: nodes.n0.address: ") for line in err.splitlines())


def test_for_programs(said, tmp_path: Path) -> None:
    script = tmp_path / "x.sh"
    script.write_text("sleep 1\nsource ./more.sh\nvllm serve /m --port 1\n")
    code, out, _ = said("import", script, "-o", "json")
    found = json.loads(out)
    assert (code, found.keys()) == (1, {"file", "not_read", "dropped", "open"})
    assert found["file"].startswith("cluster: vllm\n")
    why = "it is not followed; give it too if it is one of these scripts, or write it into env_from"
    assert found["not_read"] == [{"file": str(script), "line": 2, "text": "source ./more.sh", "why": why}]
    assert [note["text"] for note in found["dropped"]] == ["sleep 1"]
    assert {note["line"] for note in found["open"]} == {None, 3}


@pytest.mark.parametrize("args", [[], ["/nowhere/x.sh"], [SCRIPTS], [__file__], ["--deployment", "x", *ONE]])
def test_what_is_no_script_is_one_line_and_2(said, args: list[object]) -> None:
    code, out, err = said("import", *args)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1


def test_deploy_env_holds_two_deployments(said) -> None:
    file = SCRIPTS / "cli/deploy_env.sh"
    code, out, err = said("import", file)
    assert code == 1
    assert "cluster: qwen-pd" in out
    assert "--deployment merged" in err
    code, out, _ = said("import", file, "--deployment", "merged")
    assert (code, out.splitlines()[0]) == (0, "cluster: qwen")


def test_the_parser_is_loaded_by_this_verb_alone() -> None:
    code = "import sys; from yrnode.cli.main import main; main(['check', '--schema'])"
    code += "; print('tree_sitter' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "False"
