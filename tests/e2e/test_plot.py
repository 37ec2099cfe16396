"""scripts/plot.py on a real result, and on files that it cannot plot."""

import csv
import gzip
import subprocess

import matplotlib.image
import pytest
from conftest import REPOSITORY

PLOT = REPOSITORY / "scripts/plot.py"
PLOTS = ["time", "flops", "memory", "traffic", "roofline"]


def plot(*arguments, expect=0):
    process = subprocess.run([PLOT, *map(str, arguments)], capture_output=True, text=True)
    assert process.returncode == expect, process.stderr
    assert "Traceback" not in process.stderr
    return process


def drawn(name, file, folder, *arguments):
    """The text of one plot, drawn alone."""
    plot(file, "-o", folder, "--plots", name.split("_")[0], "--formats", "svg", *arguments)
    return (folder / f"{name}.svg").read_text()


@pytest.fixture(scope="module")
def plots(tiny_result, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plots")
    return folder, plot(tiny_result[0] / "tiny.csv", "-o", folder / "new")


def edited(tiny_result, path, change):
    """A copy of the result's forward rows, changed."""
    with open(tiny_result[0] / "tiny.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["pass"] == "forward"]
    change(rows)
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_each_plot_is_written_twice(plots):
    folder, process = plots
    expected = {folder / "new" / f"{name}_{kind}_fp32.{extension}"
                for name in PLOTS for kind in ["forward", "backward"]
                for extension in ["png", "svg"]}
    assert set((folder / "new").iterdir()) == expected
    assert set(process.stdout.split()) == set(map(str, expected))
    assert process.stderr == ""


def test_pngs_are_dark_on_light(plots):
    folder, _ = plots
    for path in (folder / "new").glob("*.png"):
        image = matplotlib.image.imread(path)[:, :, :3]
        assert min(image.shape[:2]) > 400
        assert (image[0, 0] == 1).all()
        assert 0.8 < image.mean() < 1 and image.min() < 0.1


def test_svgs_are_the_same_each_time(tiny_result, plots, tmp_path):
    folder, _ = plots
    same = edited(tiny_result, tmp_path / "same.csv", lambda rows: None)
    plot(same, "-o", tmp_path, "--json", tiny_result[0] / "tiny.json")
    svgs = list(tmp_path.glob("*.svg"))
    assert len(svgs) == len(PLOTS)
    for path in svgs:
        assert (folder / "new" / path.name).read_text() == path.read_text()


def test_rows_that_did_not_run_are_left_out_and_told(tiny_result, tmp_path):
    def change(rows):
        for row in rows:
            if row["provider"] == "naive":
                row.update(status="out_of_memory", reason="needs 9 GiB", verified="not_checked",
                           median_ms="", tflops="", ci_low_ms="", ci_high_ms="")

    process = plot(edited(tiny_result, tmp_path / "some.csv", change), "-o", tmp_path)
    assert "left out 2 rows of naive: out_of_memory (needs 9 GiB)" in process.stderr
    assert (tmp_path / "time_forward_fp32.png").exists()


def test_two_files_of_the_same_points_are_told_apart(tiny_result, tmp_path):
    def slower(rows):
        for row in rows:
            row["median_ms"] = 2 * float(row["median_ms"])

    new = edited(tiny_result, tmp_path / "new.csv", slower)
    old = edited(tiny_result, tmp_path / "old.csv", lambda rows: None)
    plot(old, new, "-o", tmp_path)
    svg = (tmp_path / "time_forward_fp32.svg").read_text()
    assert "naive (old)" in svg and "naive (new)" in svg


def test_rows_that_differ_in_any_axis_have_panels_of_their_own(tiny_result, tmp_path):
    def change(rows):
        for row in list(rows):
            row["placement"] = ""
            rows.append({**row, "placement": "strided"})

    svg = drawn("time_forward_fp32", edited(tiny_result, tmp_path / "both.csv", change), tmp_path)
    assert "head_dim 16, no mask" in svg and "strided" in svg
    assert "naive (both)" not in svg  # they are no copies of each other


def test_without_bandwidth_the_roofline_has_no_slope(tiny_result, tmp_path):
    alone = edited(tiny_result, tmp_path / "alone.csv", lambda rows: None)
    assert "no measured bandwidth" in plot(alone, "-o", tmp_path, "--plots", "roofline", "--formats", "svg").stderr
    assert "copy bandwidth" not in (tmp_path / "roofline_forward_fp32.svg").read_text()
    assert "copy bandwidth" in drawn("roofline_forward_fp32", alone, tmp_path, "--json", tiny_result[0] / "tiny.json")


def test_the_bandwidth_comes_from_a_compressed_result_too(tiny_result, tmp_path):
    beside = edited(tiny_result, tmp_path / "beside.csv", lambda rows: None)
    compressed = gzip.compress((tiny_result[0] / "tiny.json").read_bytes())
    (tmp_path / "beside.json.gz").write_bytes(compressed)
    assert plot(beside, "-o", tmp_path, "--plots", "roofline", "--formats", "svg").stderr == ""
    assert "copy bandwidth" in (tmp_path / "roofline_forward_fp32.svg").read_text()
    (tmp_path / "beside.json.gz").write_bytes(compressed[:-1])
    assert "beside.json.gz: not a result of flashbench" in plot(beside, "-o", tmp_path, expect=1).stderr


@pytest.mark.parametrize("providers", [["naive"], ["naive", "tiled"]])
def test_a_provider_that_does_not_tell_its_traffic_is_not_in_the_legend(tiny_result, tmp_path, providers):
    def change(rows):
        for row in rows:
            if row["provider"] in providers:
                row.update(bytes_requested="", intensity="")

    plot(edited(tiny_result, tmp_path / "some.csv", change), "-o", tmp_path)
    traffic = (tmp_path / "traffic_forward_fp32.svg").read_text()
    for provider in ["naive", "tiled"]:
        assert (f"<!-- {provider} -->" in traffic) == (provider not in providers)
    assert ("requested by its loops" in traffic) == (len(providers) == 1)
    assert "compulsory" in traffic


@pytest.mark.parametrize("measured", [False, True])
def test_the_roofline_says_which_bytes_it_is_of(tiny_result, tmp_path, measured):
    def change(rows):
        for row in rows:
            row["bytes_measured"] = row["bytes_requested"] if measured else ""

    svg = drawn("roofline_forward_fp32", edited(tiny_result, tmp_path / "some.csv", change), tmp_path)
    assert ("FLOP per byte, measured" in svg) == measured
    assert ("FLOP per byte, requested" in svg) != measured


def test_files_of_older_versions_have_fewer_columns(tiny_result, tmp_path):
    def change(rows):
        for row in rows:
            row.pop("pct_of_peak", None)
            row.pop("rel_rms_err", None)
            row.pop("notes", None)

    plot(edited(tiny_result, tmp_path / "old.csv", change), "-o", tmp_path)
    assert "peak at the measured clock" not in (tmp_path / "flops_forward_fp32.svg").read_text()


def test_the_peak_of_the_pipe_is_a_line_where_it_is_known(tiny_result, tmp_path):
    def change(rows):
        for row in rows:
            row["pct_of_peak"] = "50"

    new = edited(tiny_result, tmp_path / "new.csv", change)
    assert "peak at the measured clock" in drawn("flops_forward_fp32", new, tmp_path)


def test_points_of_another_batch_are_not_joined(tiny_result, tmp_path):
    def change(rows):
        for row in list(rows):
            rows.append({**row, "batch": 7 * int(row["batch"]), "kv_len": 1000, "q_len": 1000})

    more = edited(tiny_result, tmp_path / "more.csv", change)
    assert "not joined: of another batch" in drawn("time_forward_fp32", more, tmp_path)


def test_one_query_beside_as_many_as_keys_shows_what_a_cache_is_for(tiny_result, tmp_path):
    def change(rows):
        row = rows[0]
        rows[:] = [{**row, "batch": 1, "kv_len": keys, "q_len": queries, "median_ms": keys * queries}
                   for keys in (256, 512) for queries in (1, keys)]

    text = drawn("generation_fp32", edited(tiny_result, tmp_path / "generation.csv", change), tmp_path)
    assert "with the cache of K and V" in text and "computing all tokens again" in text


def test_one_query_beside_stream_shows_the_time_to_decode(tiny_result, tmp_path):
    def change(rows):
        row = {**rows[0], "kv_len": 256, "q_len": 1}
        rows[:] = [{**row, "batch": batch, "kv_len": keys, "median_ms": keys / 1000, "stream_us": us}
                   for batch in (1, 16) for keys, us in ((256, 3), (512, 4))]
        rows.append({**row, "batch": 3, "stream_us": 5})  # of one length

    text = drawn("decode_fp32", edited(tiny_result, tmp_path / "decode.csv", change), tmp_path)
    assert "stream: the same bytes" in text and "batch 1," in text and "batch 16," in text and "batch 3," not in text


def test_several_gpus_show_their_share_of_linear_scaling(tiny_result, tmp_path):
    def change(rows):
        row = {**rows[0], "gpus": 2}
        rows[:] = [{**row, "provider": provider, "kv_len": keys, "q_len": keys, "eff_strong": share}
                   for provider, share in (("tiled", ""), ("tiled:ring", 0.8)) for keys in (256, 512)]
        rows.append({**rows[-1], "gpus": 4})  # of one length

    text = drawn("scaling_forward_fp32", edited(tiny_result, tmp_path / "split.csv", change), tmp_path)
    assert "2 GPUs" in text and "4 GPUs" not in text and "tiled:ring" in text and "<!-- linear -->" in text


def test_without_stream_there_is_no_figure_of_decoding(tiny_result, tmp_path):
    def change(rows):
        rows[:] = [{**rows[0], "kv_len": keys, "q_len": 1, "stream_us": ""} for keys in (256, 512)]

    decode = edited(tiny_result, tmp_path / "decode.csv", change)
    plot(decode, "-o", tmp_path)
    assert not (tmp_path / "decode_fp32.svg").exists()
    process = plot(decode, "-o", tmp_path / "out", "--plots", "time,decode", expect=1)
    assert "decode.csv: no rows for a plot of decode" in process.stderr
    assert not (tmp_path / "out").exists()


def test_only_what_is_asked_for_is_written(tiny_result, tmp_path):
    process = plot(edited(tiny_result, tmp_path / "new.csv", lambda rows: None), "-o", tmp_path / "out", "--json",
                   tiny_result[0] / "tiny.json", "--plots", "memory,time", "--formats", "png")
    expected = {tmp_path / "out" / f"{name}_forward_fp32.png" for name in ("memory", "time")}
    assert set((tmp_path / "out").iterdir()) == expected
    assert set(process.stdout.split()) == set(map(str, expected))


@pytest.mark.parametrize("option, name", [("--plots", "bars"), ("--formats", "pdf"), ("--plots", "")])
def test_what_no_plot_is_called_is_an_error(tmp_path, option, name):
    process = plot("x.csv", "-o", tmp_path / "out", option, name, expect=2)
    assert f"argument {option}: expected some of " in process.stderr and f"found '{name}'" in process.stderr
    assert not (tmp_path / "out").exists()


def test_lines_look_different_for_long():
    command = "import sys; sys.path.insert(0, 'scripts'); import plot; print(len({plot.style(i) for i in range(49)}))"
    process = subprocess.run(["/usr/bin/python3", "-c", command], cwd=REPOSITORY, capture_output=True, text=True)
    assert process.stdout == "49\n", process.stderr


def test_a_missing_package_is_named(tmp_path):
    (tmp_path / "pandas.py").write_text("raise ImportError('no pandas here')")
    process = subprocess.run([PLOT, "x.csv", "-o", tmp_path], capture_output=True, text=True,
                             env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path), "VIRTUAL_ENV": "/nowhere"})
    assert process.returncode == 1
    assert "no pandas here" in process.stderr and "pip install pandas matplotlib" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "not a CSV file"),
        ("a,b\n1,2\n", "no column schema"),
        ("a,b\n1,2,3,4\n1\n", "not a"),
        ('"a', "not a"),
    ],
)
def test_bad_files(tmp_path, text, said):
    (tmp_path / "bad.csv").write_text(text)
    process = plot(tmp_path / "bad.csv", "-o", tmp_path / "out", expect=1)
    assert "bad.csv" in process.stderr and said in process.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "column, value, said",
    [
        ("median_ms", "fast", "row 2, column median_ms: expected a number, found 'fast'"),
        ("schema", "2", "expected schema 1, found 2"),
        ("mask", "diagonal", "found 'diagonal'"),
    ],
)
def test_bad_values(tiny_result, tmp_path, column, value, said):
    bad = edited(tiny_result, tmp_path / "bad.csv", lambda rows: rows[0].update({column: value}))
    assert said in plot(bad, "-o", tmp_path / "out", expect=1).stderr


def test_nothing_to_plot(tiny_result, tmp_path):
    def change(rows):
        for row in rows:
            row["status"] = "failed"

    failed = edited(tiny_result, tmp_path / "failed.csv", change)
    assert "nothing to plot" in plot(failed, "-o", tmp_path / "out", expect=1).stderr


def test_missing_file(tmp_path):
    assert "missing.csv" in plot(tmp_path / "missing.csv", "-o", tmp_path, expect=1).stderr
