"""The parts of the build that no compiler checks: launchers, probes, and the messages of scripts."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
STRICT_PTXAS = REPOSITORY / "cmake/strict_ptxas"


def run(*command, **environment):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True,
                          env={**os.environ, **environment})


def executable(path, text):
    path.write_text("#!/usr/bin/env bash\n" + text)
    path.chmod(0o755)
    return path


# ---- cmake/strict_ptxas


def test_strict_ptxas_passes_on_output_and_exit_code(tmp_path):
    compiler = executable(tmp_path / "nvcc", 'echo "compiling $1 $2"; exit 3\n')
    done = run(STRICT_PTXAS, compiler, "-c", "a file.cu")
    assert (done.returncode, done.stderr) == (3, "compiling -c a file.cu\n")


def test_strict_ptxas_fails_if_wgmma_is_serialised(tmp_path):
    note = "ptxas info : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized"
    done = run(STRICT_PTXAS, executable(tmp_path / "nvcc", f"echo '{note}' >&2\n"))
    assert done.returncode == 1
    assert note in done.stderr


def test_strict_ptxas_accepts_other_notes(tmp_path):
    assert run(STRICT_PTXAS, executable(tmp_path / "nvcc", "echo '(C7508) fine' >&2\n")).returncode == 0


@pytest.mark.parametrize("ccache", ["", "/usr/bin/ccache"])
def test_the_launcher_has_no_empty_element(tmp_path, ccache):
    """CMake's list of launchers with and without a compiler cache, as kernels/CMakeLists.txt makes it."""
    lines = (REPOSITORY / "kernels/CMakeLists.txt").read_text().splitlines()
    made = next(line.strip() for line in lines if line.strip().startswith("set(strict_launcher"))
    script = tmp_path / "launcher.cmake"
    script.write_text(f"""
set(PROJECT_SOURCE_DIR {REPOSITORY})
set(CMAKE_CUDA_COMPILER_LAUNCHER {ccache})
{made}
foreach(element IN LISTS strict_launcher)
  message("<${{element}}>")
endforeach()""")
    done = run("cmake", "-P", script)
    expected = [f"<{STRICT_PTXAS}>"] + ([f"<{ccache}>"] if ccache else [])
    assert done.stderr.split() == expected


# ---- cmake/fuzzing_compiler.cmake


def chosen_fuzzing_compiler(tmp_path, compiler):
    script = tmp_path / "probe.cmake"
    script.write_text(f"""
set(CMAKE_BINARY_DIR {tmp_path})
include({REPOSITORY}/cmake/fuzzing_compiler.cmake)
message("<${{FLASHBENCH_FUZZING_COMPILER}}>")""")
    done = run("cmake", "-P", script, CXX=str(compiler), PATH="/usr/bin:/bin")
    return done.stderr.strip()[1:-1]


def test_a_compiler_with_libfuzzer_is_chosen(tmp_path):
    compiler = executable(tmp_path / "clang", "exit 0\n")
    assert chosen_fuzzing_compiler(tmp_path, compiler) == str(compiler)


@pytest.mark.parametrize("header", ["chrono", "ranges", "filesystem"])
def test_a_compiler_that_fails_at_the_standard_library_is_not_chosen(tmp_path, header):
    """clang 14 with GCC 13's library links empty programs, but cannot compile <chrono>."""
    compiler = executable(tmp_path / "clang", f"! grep -q '<{header}>' \"${{@: -3:1}}\"\n")
    assert chosen_fuzzing_compiler(tmp_path, compiler) != str(compiler)


# ---- scripts/lib/setup.sh


def sourced(command, **environment):
    return run("bash", "-c", f"set -euo pipefail; source {REPOSITORY}/scripts/lib/setup.sh; {command}",
               **environment)


def test_a_failed_build_shows_the_first_error_alone(tmp_path):
    log = tmp_path / "log"
    log.write_text("""[1/4] Building CXX object a.o
[2/4] Building CXX object b.o
FAILED: b.o
b.cpp:7:1: error: first
[3/4] Building CXX object c.o
FAILED: c.o
c.cpp:9:1: error: second
ninja: build stopped: subcommand failed.
""")
    done = sourced(f"first_error {log}")
    assert done.stdout == "FAILED: b.o\nb.cpp:7:1: error: first\n"


def test_a_log_without_an_error_is_shown_from_its_end(tmp_path):
    log = tmp_path / "log"
    log.write_text("".join(f"line {i}\n" for i in range(100)))
    assert sourced(f"first_error {log}").stdout.splitlines() == [f"line {i}" for i in range(60, 100)]


def test_a_failed_command_ends_the_script_and_names_its_log(tmp_path):
    log = tmp_path / "log"
    done = sourced(f"run_logged {log} working bash -c 'echo broken; exit 5'; echo went on")
    assert done.returncode == 1
    assert "went on" not in done.stdout
    assert "broken" in done.stderr and str(log) in done.stderr


@pytest.fixture
def apt(tmp_path):
    """A machine without packages, whose apt-cache knows `lists/` once `apt-get update` has run."""
    tools = tmp_path / "tools"
    tools.mkdir()
    executable(tools / "dpkg-query", "exit 1\n")
    executable(tools / "sudo", '"$@"\n')
    executable(tools / "apt-cache", f'[[ $1 == madison ]] && grep -x "$2" {tmp_path}/lists 2>/dev/null\n')
    executable(tools / "apt-get", f"""
echo "$*" >>{tmp_path}/called
case $1 in
  update) cp {tmp_path}/mirror {tmp_path}/lists ;;
  --yes | install) ;;
esac
""")
    (tmp_path / "called").touch()

    def install(*packages):
        return sourced(f"install_packages {' '.join(packages)}", PATH=f"{tools}:{os.environ['PATH']}")

    return install


def test_lists_are_fetched_before_packages_are_chosen(apt, tmp_path):
    (tmp_path / "mirror").write_text("cmake\nclang\ng++\n")
    done = apt("cmake", "clang", "libclang-rt-dev")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "flashbench: installing cmake clang\n"
    assert len((tmp_path / "called").read_text().splitlines()) == 2


def test_optional_packages_that_a_release_lacks_are_not_asked_for_again(apt, tmp_path):
    (tmp_path / "lists").write_text("cmake\ng++\n")
    done = apt("libclang-rt-dev")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "called").read_text() == ""


def test_without_a_network_the_message_says_so(apt, tmp_path):
    done = apt("cmake")  # no mirror
    assert done.returncode == 1
    assert "apt-get update failed" in done.stderr
    assert "is there a network" in done.stderr
    assert "Unable to locate" not in done.stderr


# ---- scripts/check


@pytest.mark.parametrize("there, missing", [([], "clang-format"), (["clang-format"], "ruff")])
def test_check_fails_without_its_tools(tmp_path, there, missing):
    for folder in ["scripts", "cmake"]:
        shutil.copytree(REPOSITORY / folder, tmp_path / folder)
    for name in there:
        package = next((REPOSITORY / "build/third_party").glob(f"{name}-*"))
        shutil.copytree(package, tmp_path / "build/third_party" / package.name)
    done = run(tmp_path / "scripts/check", PIP_NO_INDEX="1")
    assert done.returncode == 1
    assert f"could not fetch {missing}" in done.stderr
    assert "passed" not in done.stdout
