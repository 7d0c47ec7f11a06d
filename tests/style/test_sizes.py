"""Files and functions stay short."""

from tests.style.checkout import functions, name, python_files

FILE_LINES_MAX = 400
FILE_LINES_P90 = 350
FUNCTION_LINES_MAX = 60
FUNCTION_LINES_P90 = 25
SHOWN_MAX = 8


def percentile_90(sizes: list[int]) -> int:
    """Return the size that nine out of ten do not exceed."""
    ordered = sorted(sizes)
    return ordered[(len(ordered) * 9 - 1) // 10]


def worst(sized: dict[str, int]) -> str:
    """Return the longest ones, for the message of a failure."""
    ranked = sorted(sized.items(), key=lambda item: -item[1])[:SHOWN_MAX]
    return "\n".join(f"{lines:5} {place}" for place, lines in ranked)


def test_no_file_is_longer_than_400_lines() -> None:
    """A file that grows past this holds two things."""
    sized = {name(path): len(path.read_text().splitlines()) for path in python_files()}
    assert max(sized.values()) <= FILE_LINES_MAX, f"split the longest:\n{worst(sized)}"


def test_nine_in_ten_files_have_at_most_350_lines() -> None:
    """The longest allowed file is the exception."""
    sized = {name(path): len(path.read_text().splitlines()) for path in python_files("pgtasks")}
    assert percentile_90([*sized.values()]) <= FILE_LINES_P90, f"split some of:\n{worst(sized)}"


def test_no_function_is_longer_than_60_lines() -> None:
    """A function that grows past this does two things."""
    sized = {function.place: function.lines for function in functions(python_files())}
    assert max(sized.values()) <= FUNCTION_LINES_MAX, f"split the longest:\n{worst(sized)}"


def test_nine_in_ten_functions_have_at_most_25_lines() -> None:
    """The longest allowed function is the exception."""
    sized = {function.place: function.lines for function in functions(python_files("pgtasks"))}
    assert percentile_90([*sized.values()]) <= FUNCTION_LINES_P90, f"split some of:\n{worst(sized)}"
