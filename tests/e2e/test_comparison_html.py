"""The HTML page of a comparison: the file by itself, and in a browser."""

import json

import pytest
from conftest import REPOSITORY, Flashbench
from lib.json_file import read_json
from page import HOSTILE, LARGEST, SHOWN, Page, in_browser, with_long_path

H200 = REPOSITORY / "results/h200/fp16.json.gz"


def change(result):
    """Plants a row of most kinds: slower, faster, newly wrong (row 5), too few samples (7) and missing (the last)."""
    for number, row in enumerate(result["results"]):
        if not row["performance"]:
            continue
        measured = row["performance"]["measurement"]
        planted = {("tiled", "forward"): 1.2, ("cudnn", "backward"): 0.8}.get((row["provider"], row["case"]["pass"]), 1)
        measured["samples_s"] = [planted * seconds for seconds in measured["samples_s"]]
        if number == 7:
            measured["samples_s"] = measured["samples_s"][:5]
            measured["states"] = {name: values[:5] for name, values in measured["states"].items()}
    result["results"][5].update(status="failed", reason="o is off", performance=None)
    del result["results"][-1]


@pytest.fixture(scope="module")
def pages(binary, tmp_path_factory):
    """The folder of new.json, which differs from H200, and of their comparison: c.html, c.json."""
    flashbench = Flashbench(binary, tmp_path_factory.mktemp("comparison"))
    result = read_json(H200)
    change(result)
    (flashbench.folder / "new.json").write_text(json.dumps(result))
    base = with_long_path(H200, flashbench.folder)
    flashbench("compare", base, "new.json", "--format", "html", "--out", "c.html", "--json", "c.json")
    return flashbench.folder


@pytest.fixture
def page(pages):
    return Page((pages / "c.html").read_text())


@pytest.fixture
def comparison(pages):
    return json.loads((pages / "c.json").read_text())


def numbers_with(comparison, verdict):
    return [number for number, row in enumerate(comparison["rows"]) if row["verdict"] == verdict]


# ---- the file


def test_the_file_is_small_and_needs_no_other(pages, page):
    text = (pages / "c.html").read_text()
    assert len(text) < LARGEST
    assert page.loads == []
    assert "link" not in page.tags and "iframe" not in page.tags
    assert "default-src 'none'" in text


def test_the_page_has_every_verdict_with_its_figures(page, comparison):
    assert {"SLOWER", "NEWLY_WRONG", "FASTER", "SAME", "INCONCLUSIVE", "MISSING"} <= {row["verdict"] for row in comparison["rows"]}
    shown = page.shown()["comparison"]
    for name in ["options", "regressed", "counts", "geometric_mean_ratios", "differences"]:
        assert shown[name] == comparison[name]
    for row, source in zip(shown["rows"], comparison["rows"], strict=True):
        assert {name: row[name] for name in row if name not in ("base", "new")}.items() <= source.items()


def test_each_row_has_the_samples_of_both_sides(pages, page):
    results = [read_json(path)["results"] for path in [H200, pages / "new.json"]]
    there = {"base": 0, "new": 0}
    document = page.shown()
    for row in document["comparison"]["rows"]:
        for side, source, shown in zip(there, results, document["results"]):
            if row[side] is None:
                continue
            source, shown = source[row[side]], shown["rows"][row[side]]
            there[side] += 1
            assert row["provider"] == shown["provider"] == source["provider"]
            measured = source["performance"] and source["performance"]["measurement"]
            samples = [1e3 * seconds for seconds in measured["samples_s"]] if measured else None
            assert (shown["samples"]["ms"] if measured else shown.get("samples")) == pytest.approx(samples, rel=1e-4)
    assert there == {"base": len(results[0]), "new": len(results[1])}


def test_without_out_the_page_goes_to_stdout(pages, flashbench):
    said = flashbench("compare", H200, pages / "new.json", "-f", "html").stdout
    flashbench("compare", H200, pages / "new.json", "-f", "html", "-o", "c.html")
    assert said == (flashbench.folder / "c.html").read_text()


@pytest.mark.parametrize("form, begins", [("table", "base "), ("md", "# Comparison"), ("json", "{"), ("html", "<!doctype html>")])
def test_every_format_goes_to_a_file(pages, flashbench, form, begins):
    process = flashbench("compare", H200, pages / "new.json", "-f", form, "-o", "out", "--md", "-", "--json", "c.json")
    assert (flashbench.folder / "out").read_text().startswith(begins)
    assert process.stdout.startswith("# Comparison") and process.stdout.count("# Comparison") == 1
    assert (flashbench.folder / "c.json").read_text().startswith("{")


def test_the_exit_code_is_that_of_the_comparison(pages, flashbench):
    flashbench("compare", H200, pages / "new.json", "-f", "html", "-o", "c.html", "--fail-on-regression", expect=1)
    assert (flashbench.folder / "c.html").exists()
    flashbench("compare", H200, H200, "-f", "html", "-o", "c.html", "--fail-on-regression")


@pytest.mark.parametrize("base, new, code, said", [
    ("bad.json", H200, 5, "bad.json"),
    (H200, "bad.json", 7, "bad.json"),
    (H200, REPOSITORY / "results/cpu/cpu.json.gz", 5, "device_kind"),
    ("none.json", H200, 5, "none.json"),
])
def test_bad_input_leaves_no_page(flashbench, base, new, code, said):
    (flashbench.folder / "bad.json").write_text("{}")
    process = flashbench("compare", base, new, "-f", "html", "-o", "c.html", expect=code)
    assert said in process.stderr
    assert not (flashbench.folder / "c.html").exists()


def test_an_output_that_cannot_be_written_is_said_first(flashbench):
    process = flashbench("compare", "none.json", H200, "-f", "html", "-o", "none/c.html", expect=7)
    assert "none/c.html" in process.stderr


# ---- in a browser


POINTS = "document.querySelectorAll('#charts details[open] svg .mark-symbol path').length"


def drawn(comparison, pass_):
    return sum(row["case"]["pass"] == pass_ and (row["ratio"] is not None or row["verdict"] == "NEWLY_WRONG")
               for row in comparison["rows"])


@in_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_both_charts_have_every_ratio_in_the_width_there_is(pages, comparison, browser, width, dark):
    browser.open(pages / "c.html", width, dark)
    for kind in range(2):
        browser.evaluate(f"document.querySelectorAll('#figures button')[{kind}].click()")
        browser.wait(f"{POINTS} === {drawn(comparison, 'forward')}")
    assert browser.evaluate("document.querySelectorAll('#charts svg[aria-label], #charts svg [aria-label]').length") > 0
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert browser.complaints() == []
    assert all(url.startswith("file:") for url in browser.requested())


@in_browser
def test_the_header_says_what_came_of_it_and_shows_one_verdict(pages, comparison, browser):
    browser.open(pages / "c.html")
    counts = {verdict: count for verdict, count in comparison["counts"].items() if count}
    said = browser.evaluate("results.textContent")
    assert f"{counts['SLOWER'] + counts['NEWLY_WRONG']} of the {len(comparison['rows'])} rows are SLOWER or NEWLY_WRONG." in said
    assert browser.evaluate("[...document.querySelectorAll('#results button')].map(b => b.textContent)") == [
        f"{count} {verdict}" for verdict, count in counts.items()]
    for number, count in enumerate(counts.values()):
        browser.evaluate(f"document.querySelectorAll('#results button')[{number}].click()")
        assert browser.evaluate(SHOWN) == count
    browser.evaluate("[...document.querySelectorAll('#filters button')].pop().click()")
    assert browser.evaluate(SHOWN) == len(comparison["rows"])
    assert browser.complaints() == []


@in_browser
def test_rows_are_sorted_by_verdict_and_by_any_column(pages, comparison, browser):
    browser.open(pages / "c.html")
    order = list(comparison["counts"])
    shown = browser.evaluate("[...document.querySelectorAll('#table > tbody > tr')].map(r => r.children[1].textContent)")
    assert [order.index(verdict) for verdict in shown] == sorted(order.index(row["verdict"]) for row in comparison["rows"])
    heading = "[...document.querySelectorAll('#table thead th')].find(h => h.textContent === 'ratio')"
    browser.evaluate(f"{heading}.querySelector('button').click()")
    ratios = browser.evaluate("[...document.querySelectorAll('#table > tbody > tr')]"
                              f".map(r => Number(r.children[{heading}.cellIndex].textContent)).filter(r => r === r)")
    assert ratios == sorted(ratios)
    assert len(ratios) == sum(row["ratio"] is not None for row in comparison["rows"])


def open_row(browser, comparison, verdict):
    browser.evaluate("[...document.querySelectorAll('#results button')]"
                     f".find(b => b.textContent.endsWith(' {verdict}')).click()")
    browser.evaluate("document.querySelector('#table > tbody > tr:not([hidden]) .open').click()")
    return comparison["rows"][numbers_with(comparison, verdict)[0]]


@in_browser
def test_a_row_opens_to_the_samples_of_both_sides_and_its_command(pages, comparison, browser):
    browser.open(pages / "c.html")
    row = open_row(browser, comparison, "SLOWER")
    browser.wait("document.querySelectorAll('.row-details svg').length === 6")  # time, SM clock and power, twice
    sources = [next(source for source in read_json(path)["results"]
                    if (source["key"], source["provider"]) == (row["key"], row["provider"])) for path in [H200, pages / "new.json"]]
    symbols = browser.evaluate("[...document.querySelectorAll('.row-details svg')].map(s => s.querySelectorAll('.mark-symbol path').length)")
    assert symbols == [len(source["performance"]["measurement"]["samples_s"]) for source in sources for _ in range(3)]
    assert browser.evaluate("[...document.querySelectorAll('.row-details .command')].map(c => c.textContent)") == [sources[1]["repro"]]
    assert browser.complaints() == []


@in_browser
def test_rows_without_a_time_say_why(pages, comparison, browser):
    browser.open(pages / "c.html")
    open_row(browser, comparison, "NEWLY_WRONG")
    assert "failed: o is off" in browser.evaluate("document.querySelector('.row-details').textContent")
    open_row(browser, comparison, "MISSING")
    assert "Not in this result." in browser.evaluate("document.querySelector('.row-details').textContent")
    open_row(browser, comparison, "INCONCLUSIVE")
    assert "To decide it" in browser.evaluate("document.querySelector('.row-details').textContent")
    assert browser.complaints() == []


@in_browser
def test_the_keyboard_opens_a_row(pages, browser):
    browser.open(pages / "c.html")
    browser.evaluate("document.querySelector('#table .open').focus()")
    for kind in ["keyDown", "keyUp"]:
        browser.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
    browser.wait("document.querySelector('#table .open').getAttribute('aria-expanded') === 'true'")


@in_browser
def test_conditions_and_the_rule_are_shown(pages, flashbench, browser):
    result = read_json(H200)
    result["meta"]["compiler"] = "GNU 99"
    (flashbench.folder / "other.json").write_text(json.dumps(result))
    flashbench("compare", H200, "other.json", "-f", "html", "-o", "c.html", "--allow-different", "compiler", "--noise-threshold", "3%")
    browser.open(flashbench.folder / "c.html")
    assert "compared although compiler differs" in browser.evaluate("results.textContent")
    compiler = "[...document.querySelectorAll('#environment tr')].find(r => r.cells[0].textContent === 'compiler')"
    assert browser.evaluate(f"[...{compiler}.cells].map(c => c.textContent)") == ["compiler", "GNU 12.2.0", "GNU 99", "differs"]
    assert browser.evaluate("document.getElementById('noise-threshold').textContent") == "3%"
    assert browser.evaluate("document.getElementById('same-within').textContent") == "5%"
    assert browser.complaints() == []


@in_browser
def test_results_without_times_have_no_charts(flashbench, tiny_result, browser):
    flashbench("verify", "--config", flashbench.config(), "--json", "a.json")
    flashbench("compare", "a.json", "a.json", "-f", "html", "-o", "c.html")
    browser.open(flashbench.folder / "c.html")
    assert "Nothing to draw" in browser.evaluate("charts.textContent")
    assert browser.complaints() == []


@in_browser
def test_hostile_texts_are_shown_as_they_are(flashbench, tiny_result, browser):
    result = json.loads((tiny_result[0] / "tiny.json").read_text())
    result["config"]["name"] = HOSTILE
    result["results"][0].update(provider=HOSTILE, kernel=HOSTILE)
    base, new = flashbench.folder / "base.json", flashbench.folder / (HOSTILE.replace("/", "") + ".json")
    base.write_text(json.dumps(result))
    result["results"][1].update(status="failed", reason=HOSTILE, performance=None)
    new.write_text(json.dumps(result))
    flashbench("compare", base, new, "-f", "html", "-o", "c.html")
    browser.open(flashbench.folder / "c.html")
    browser.evaluate("document.querySelectorAll('#table .open').forEach(b => b.click())")
    browser.wait("document.querySelectorAll('.row-details svg').length > 0")
    assert HOSTILE in browser.evaluate("[...document.querySelectorAll('#table .open')].map(b => b.textContent)")
    assert HOSTILE in browser.evaluate("document.querySelector('.row-details .bad, .row-details p.bad').parentNode.textContent")
    assert browser.evaluate("window.hacked === undefined && document.querySelectorAll('img').length === 0")
    assert browser.complaints() == []
