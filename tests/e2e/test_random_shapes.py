"""scripts/random_shapes.py: configs/random_shapes.json has the cases that it draws."""
import shutil
import subprocess
import sys

from conftest import REPOSITORY

SCRIPT = "scripts/random_shapes.py"
CONFIG = "configs/random_shapes.json"


def run(repository, *arguments):
    return subprocess.run([sys.executable, repository / SCRIPT, *arguments],
                          capture_output=True, text=True)


def test_the_committed_config_is_what_the_script_draws():
    process = run(REPOSITORY, "--check")
    assert process.returncode == 0, process.stderr


def test_another_config_is_reported_and_written_again(tmp_path):
    for path in [SCRIPT, CONFIG]:
        (tmp_path / path).parent.mkdir()
        shutil.copy(REPOSITORY / path, tmp_path / path)
    drawn = (tmp_path / CONFIG).read_text()
    changed = drawn.replace('"batch": 1,', '"batch": 2,', 1)
    (tmp_path / CONFIG).write_text(changed)
    process = run(tmp_path, "--check")
    assert process.returncode == 1
    assert "is not what" in process.stderr
    assert (tmp_path / CONFIG).read_text() == changed
    assert run(tmp_path).returncode == 0
    assert (tmp_path / CONFIG).read_text() == drawn
