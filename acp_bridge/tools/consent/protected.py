"""Files that make tools run code by themselves: when a folder is opened or entered, at a commit, a push, a build
server's run, or the start of a shell. Pure.

They are recognised by their names, in any spelling that some filesystem takes for the same: case, width of letters,
characters without a shape (HFS+), trailing dots and blanks, streams (`name:stream`) and short names (`VSCODE~1`) of
Windows. Files that run only when the person runs them (a Makefile, a test) are not among them.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Sequence
from fnmatch import fnmatchcase

GIT = "git, which can run programs"
EDITOR = "settings of an editor, which can run programs"
AGENT = "settings of a coding agent, which can run programs"
ENTERED = "what runs when the folder is entered or opened"
HOOK = "what runs at commits and pushes"
CI = "what build servers run"
SHELL = "what runs when a shell or an interpreter starts"
TOOL = "settings that make a tool run other programs"
LOGIN = "what runs or opens at logins"

#: A folder or file of this name, and all below it.
_NAMES: dict[str, str] = {
    **dict.fromkeys((".git", ".hg", ".jj", ".gitconfig", ".gitattributes", ".gitmodules"), GIT),
    **dict.fromkeys((".vscode", ".vscode-server", ".zed", ".idea", ".fleet", ".vs", ".helix", ".theia"), EDITOR),
    **dict.fromkeys((".vimrc", ".nvimrc", ".exrc", ".nvim.lua", ".gvimrc", ".vim", ".emacs", ".emacs.d"), EDITOR),
    **dict.fromkeys(
        (".dir-locals.el", ".dir-locals-2.el", ".projectile", ".project", ".settings", ".run", ".nova", ".lvimrc"),
        EDITOR,
    ),
    **dict.fromkeys((".cursor", ".windsurf", ".kiro", ".trae", ".junie", ".claude", ".codex", ".gemini"), AGENT),
    **dict.fromkeys((".mcp.json", "mcp.json", ".continue", ".roo", ".cline", ".opencode"), AGENT),
    **dict.fromkeys((".envrc", ".direnvrc", ".direnv", ".autoenv", ".autoenv.zsh", ".env.ps1", ".mise"), ENTERED),
    **dict.fromkeys((".mise.toml", "mise.toml", ".mise.local.toml", "mise.local.toml", ".rtx.toml"), ENTERED),
    **dict.fromkeys(("flake.nix", "shell.nix", "devenv.nix", "devbox.json"), ENTERED),
    **dict.fromkeys((".devcontainer", ".devcontainer.json", ".gitpod.yml", ".idx", "autorun.inf"), ENTERED),
    **dict.fromkeys((".husky", ".githooks", ".git-hooks", ".hooks", ".pre-commit-config.yaml"), HOOK),
    **dict.fromkeys((".pre-commit-hooks.yaml", ".overcommit.yml", ".huskyrc", ".lintstagedrc", ".prek.toml"), HOOK),
    **dict.fromkeys((".gitlab-ci.yml", ".gitlab-ci.yaml", ".circleci", ".travis.yml", ".buildkite", ".forgejo"), CI),
    **dict.fromkeys(
        (".builds", ".build.yml", ".readthedocs.yaml", ".readthedocs.yml", "netlify.toml", "vercel.json"), CI
    ),
    **dict.fromkeys((".gitea", ".teamcity", ".azure-pipelines", ".drone.yml", ".drone.star", ".woodpecker"), CI),
    **dict.fromkeys((".woodpecker.yml", ".woodpecker.yaml", ".cirrus.yml", ".cirrus.star", ".semaphore"), CI),
    **dict.fromkeys((".appveyor.yml", "appveyor.yml", ".screwdriver.yaml", "screwdriver.yaml", ".tekton"), CI),
    **dict.fromkeys(
        ("bitbucket-pipelines.yml", "buildspec.yml", "wercker.yml", ".harness", ".onedev-buildspec.yml"), CI
    ),
    **dict.fromkeys((".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile"), SHELL),
    **dict.fromkeys((".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".cshrc", ".tcshrc", ".login"), SHELL),
    **dict.fromkeys((".bash_completion", ".ipython"), SHELL),
    **dict.fromkeys((".kshrc", ".mkshrc", ".shrc", ".logout", ".inputrc", ".tmux.conf", ".screenrc"), SHELL),
    **dict.fromkeys((".xprofile", ".xinitrc", ".xsession", ".xsessionrc", ".xserverrc", ".pam_environment"), SHELL),
    **dict.fromkeys((".pythonrc", ".pythonrc.py", ".pythonstartup", "sitecustomize.py", "usercustomize.py"), SHELL),
    **dict.fromkeys((".pdbrc", ".pdbrc.py", ".gdbinit", ".lldbinit", ".irbrc", ".pryrc", ".rprofile"), SHELL),
    **dict.fromkeys((".wgetrc", ".curlrc", ".ackrc", ".latexmkrc", ".sqliterc", ".psqlrc", ".my.cnf"), TOOL),
    **dict.fromkeys(
        (".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".pnpmfile.mjs", ".yarn", ".bunfig.toml"), TOOL
    ),
    **dict.fromkeys(
        ("bunfig.toml", ".pnp.cjs", ".pnp.loader.mjs", "rust-toolchain", "rust-toolchain.toml", ".gradle"), TOOL
    ),
    **dict.fromkeys((".cargo", ".mvn", ".bazelrc", ".pip", "pip.conf", ".kube"), TOOL),
    **dict.fromkeys(
        (".ssh", ".gnupg", ".config", ".local", ".aws", ".launchagents", "launchagents", "launchdaemons"), LOGIN
    ),
}

#: A file of this name. A folder that holds a HEAD is a repository to git, with settings of its own beside it.
_FILES: dict[str, str] = {"head": GIT}

#: Names of one shape.
_SHAPES: dict[str, str] = {
    "*.code-workspace": EDITOR,
    "*.sublime-project": EDITOR,
    "*.sublime-workspace": EDITOR,
    ".envrc.*": ENTERED,
    "mise.*.toml": ENTERED,
    ".mise.*.toml": ENTERED,
    "lefthook.y*ml": HOOK,
    "lefthook-local.y*ml": HOOK,
    ".lefthook*": HOOK,
    ".lintstagedrc.*": HOOK,
    "lint-staged.config.*": HOOK,
    "jenkinsfile*": CI,
    "*.jenkinsfile": CI,
    "azure-pipelines*.y*ml": CI,
    "cloudbuild*.y*ml": CI,
    "*profile.ps1": SHELL,
    "*.pth": SHELL,
    ".lldbinit-*": SHELL,
    "desktop.ini": ENTERED,
}

#: A folder in a folder.
_PAIRS: dict[tuple[str, str], str] = {
    (".github", "workflows"): CI,
    (".github", "actions"): CI,
    (".github", "hooks"): AGENT,
    (".gitlab", "ci"): CI,
    ("gradle", "wrapper"): TOOL,
    ("start menu", "programs"): LOGIN,
}

#: A short name of Windows: up to six letters of the long one, or two and four digits made from it.
_SHORT = re.compile(r"(?P<stem>[^.~]{1,6})~[0-9]{1,6}(?:\.(?P<end>[^.~]{0,3}))?")
_MADE = re.compile(r"[^.~]{2}[0-9a-f]{4}")
_NO_LETTER = re.compile(r"[^0-9a-z_-]")
_SHORT_ENDS = {"cod": EDITOR, "sub": EDITOR, "pth": SHELL, "ps1": SHELL}
#: Part of no name on HFS+, where `.g<joiner>it` is `.git`.
_WITHOUT_SHAPE = frozenset({"Cf", "Cc", "Mn", "Me"})


def plain_name(name: str) -> str:
    """Fold a name as filesystems do that take several spellings for one file."""
    name = unicodedata.normalize("NFKC", name)
    kept = "".join(character for character in name if unicodedata.category(character) not in _WITHOUT_SHAPE)
    return kept.casefold().partition(":")[0].rstrip(". ")


def runs_code(names: Sequence[str]) -> str:
    """Why a file runs code, as a phrase for the person; "" for one that does not by its names.

    `names` are the parts of its path, the outermost first, from somewhere above the workspace's folder.
    """
    plain = [plain_name(part) for name in names for part in re.split(r"[/\\]", name)]
    if plain and plain[-1] in _FILES:
        return _FILES[plain[-1]]
    for name in plain:
        if reason := _NAMES.get(name) or _shaped(name) or _short(name):
            return reason
    for pair in itertools.pairwise(plain):
        if reason := _PAIRS.get(pair, ""):
            return reason
    return ""


def _shaped(name: str) -> str:
    return next((reason for shape, reason in _SHAPES.items() if fnmatchcase(name, shape)), "")


def _short(name: str) -> str:
    """A short name may stand for any long name that begins so."""
    found = _SHORT.fullmatch(name)
    if found is None:
        return ""
    stem = found["stem"]
    made = stem[:2] if _MADE.fullmatch(stem) else None
    for known, reason in [*_NAMES.items(), ("jenkinsfile", CI), ("lefthook", HOOK)]:
        long = {_NO_LETTER.sub("", part)[:6] for part in (known, known.rpartition(".")[0]) if part}
        if stem in long or (made is not None and any(each.startswith(made) for each in long)):
            return reason
    return _SHORT_ENDS.get(found["end"] or "", "")
