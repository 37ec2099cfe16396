"""The manual page: whole, and without warnings from groff."""

import re
import shutil
import subprocess

import pytest
from conftest import REPOSITORY


@pytest.fixture
def page(flashbench):
    return flashbench("manual").stdout


def rendered(page, *flags):
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    process = subprocess.run(["groff", "-man", "-Tutf8", "-P-cbou", *flags], input=page, text=True,
                             capture_output=True, check=True)
    assert process.stderr == ""
    return process.stdout.replace("\u2010", "-").replace("\u2212", "-")


def test_it_has_every_section_of_a_manual_page(page):
    sections = [line[4:] for line in page.splitlines() if line.startswith(".SH ")]
    assert sections == ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "EXIT STATUS",
                        "FILES", "SEE ALSO"]
    assert page.startswith('.TH FLASHBENCH 1 "" "flashbench ')


def test_it_has_every_verb_with_its_options(flashbench, page):
    parts = page.split(".SS ")
    sections = {part.split("\n")[0].strip("\\fBR"): part.replace("\\-", "-") for part in parts[1:]}
    listed = re.split("subcommands:", flashbench("--help").stdout, flags=re.IGNORECASE)[1]
    verbs = [line.split()[0] for line in listed.splitlines() if re.match("  [a-z]", line)]
    assert list(sections) == verbs and "worker" not in verbs and "manual" not in verbs
    for verb, section in sections.items():
        text = flashbench(verb, "--help").stdout.split("Configs:")[0]
        lines = [line for line in text.splitlines() if line.startswith("  -")]
        options = {word.rstrip(",") for line in lines for name in [line.split()[0]]
                   for word in name.split(",") if word.startswith("--")} - {"--help"}
        for option in options:
            assert f"\\fB{option}\\fR" in section, (verb, option)


def test_the_design_has_the_exit_codes_of_the_help(flashbench):
    said = flashbench("--help").stdout.split("Exit codes:")[1]
    table = (REPOSITORY / "docs/design.md").read_text().split("| exit code | meaning |")[1].split("\n\n")[0]
    assert re.findall(r"(?m)^\| ([\d, ]+) \|", table) == [
        code.replace(" or ", ", ") for code in re.findall(r"(?:^|; )\s*(\d+(?: or \d+)?) ", said.replace("\n", " "))]


def test_it_has_the_exit_codes_of_the_help(flashbench, page):
    text = page.replace("\\-", "-")
    said = flashbench("--help").stdout.split("Exit codes:")[1].replace("\n", " ")
    for meaning in ["verification failed", "no usable device", "a file cannot be read or written"]:
        assert meaning in said and meaning in text
    assert text.count(".TP", text.index(".SH EXIT STATUS"), text.index(".SH FILES")) == 9


def test_groff_has_nothing_to_say(page):
    text = rendered(page, "-ww")
    assert "flashbench sweep [options]" in text
    assert "results/NAME" in text
