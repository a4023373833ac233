"""The pages of the documentation site that are made of files outside docs/, as hooks of mkdocs."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from dally.commands import main as dally
from profiler.commands import main as profile_models

NOTEBOOKS = Path("analysis/notebooks")
OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+((?:analysis|dally|profiler|simulator|workloads)/[^)]*)\)")
NOTEBOOK = re.compile(r"\]\(\.\./((?:\.\./)*)analysis/notebooks/(\w+)\.ipynb\)")
AT_THE_TOP = re.compile(r"\]\(\.\./((?:\.\./)*)(CHANGELOG|CONTRIBUTING)\.md")
COMMANDS = "<!-- commands -->"
MARK = re.compile(r"^<!-- [a-z0-9-]+ -->\n", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of other files."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=notebook_page(path)))
    for name in ("CHANGELOG", "CONTRIBUTING"):
        text = Path(f"{name}.md").read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, f"{name.lower()}.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Links lead to the pages made of other files; those to programs become paths, as these are no pages.

    Marks that tables are written by go.
    """
    if COMMANDS in markdown:
        pages = (*help_pages(dally, "dally"), *help_pages(profile_models, "profile-models"))
        markdown = markdown.replace(COMMANDS, "\n".join(pages))
    markdown = NOTEBOOK.sub(r"](\1notebooks/\2.md)", markdown)
    markdown = AT_THE_TOP.sub(lambda link: f"]({link[1]}{link[2].lower()}.md", markdown)
    return MARK.sub("", OUTSIDE.sub(r"\1 (`\2`)", markdown))


def help_pages(command: click.Command, name: str, above: click.Context | None = None) -> Iterator[str]:
    """What `--help` says of a command and all below it."""
    context = click.Context(command, above, name, terminal_width=80, **command.context_settings)
    depth = 2 if above is None else 3
    yield f"{'#' * depth} {context.command_path}\n\n```\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            if found := command.get_command(context, below):
                yield from help_pages(found, below, context)


def notebook_page(path: Path) -> str:
    """A notebook as Markdown: its text, its code, and where it lies."""
    text, *cells = nbformat.read(path, as_version=4).cells
    parts = [
        cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```" for cell in cells
    ]
    run = f"To run it: `.venv/bin/jupyter execute {path}`, or open it in Jupyter or in an editor."
    return "\n\n".join([text.source, run, *parts]).replace("](../../docs/", "](../") + "\n"
