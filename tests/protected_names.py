"""Names of files that make tools run code, other spellings of them, and names that only look alike."""

from __future__ import annotations

#: Each asks in every mode.
RUNS_CODE = [
    ".git/config", ".git/hooks/pre-commit", ".git/info/attributes", "sub/.git", "sub/.git/config", ".git/x/y/z",
    ".gitattributes", ".gitmodules", "a/.gitattributes", "HEAD", "x/HEAD", ".gitconfig", ".hg/hgrc",
    ".jj/repo/config.toml", ".vscode/tasks.json", ".vscode/settings.json", "pkg/.vscode/launch.json",
    ".zed/settings.json", ".zed/tasks.json", ".idea/workspace.xml", ".idea/runConfigurations/x.xml",
    ".fleet/run.json", ".vs/tasks.vs.json", "my.code-workspace", "a/b.code-workspace", ".exrc", ".nvim.lua",
    ".dir-locals.el", ".vimrc", ".helix/languages.toml", "my.sublime-project", ".cursor/mcp.json",
    ".claude/settings.json", ".mcp.json", ".codex/config.toml", ".gemini/settings.json", ".envrc", "flake.nix",
    "devbox.json", "sub/.envrc",
    ".envrc.local", ".mise.toml", "mise.toml", ".devcontainer/devcontainer.json", ".devcontainer.json",
    ".gitpod.yml", ".husky/pre-commit", ".githooks/x", ".pre-commit-config.yaml", "lefthook.yml",
    "lefthook.yaml", ".lintstagedrc.json", ".github/workflows/ci.yml", ".github/actions/x/action.yml",
    ".gitlab-ci.yml", ".gitlab/ci/x.yml", "Jenkinsfile", "Jenkinsfile.release", ".circleci/config.yml",
    "azure-pipelines.yml", ".travis.yml", "bitbucket-pipelines.yml", ".drone.yml", ".buildkite/pipeline.yml",
    ".woodpecker/x.yml", ".cirrus.yml", "appveyor.yml", "buildspec.yml", "cloudbuild.yaml",
    ".forgejo/workflows/x.yml", ".bashrc", ".bash_profile", ".profile", ".zshrc", ".zshenv",
    ".config/fish/config.fish", ".inputrc", "profile.ps1", "Microsoft.PowerShell_profile.ps1",
    "sitecustomize.py", "lib/x.pth", ".pythonrc", ".gdbinit", ".Rprofile", ".npmrc", ".yarnrc.yml",
    ".pnpmfile.cjs", ".cargo/config.toml", ".mvn/jvm.config", ".bazelrc", "pip.conf", ".ssh/config",
    ".config/autostart/x.desktop", "LaunchAgents/x.plist", ".local/bin/git", ".readthedocs.yaml", "netlify.toml",
    ".builds/x.yml", ".bash_completion", ".ipython/profile_default/startup/x.py", "mise.dev.toml", ".mise.ci.toml",
    ".lldbinit-Xcode", ".github/hooks/x.json", ".gradle/init.gradle", "gradle/wrapper/gradle-wrapper.properties",
    "rust-toolchain.toml", "bunfig.toml", ".pnp.cjs",
]  # fmt: skip

#: Some filesystem takes each for one of them.
SPELLINGS = [
    ".GIT/config", ".Git/Config", ".VSCODE/tasks.json", ".Zed/settings.json", ".EnvRC", "JENKINSFILE",
    "X.CODE-WORKSPACE", ".git./config", ".git /config", ".git../config", ".vscode. ./tasks.json", ".envrc.",
    ".envrc ", ".git::$INDEX_ALLOCATION/x", ".envrc::$DATA", ".envrc:stream",
    ".vscode:$I30:$INDEX_ALLOCATION/tasks.json", "GIT~1/config", "git~1/hooks/x", "VSCODE~1/x",
    "ZED~1/settings.json", "ENVRC~1", "GITLAB~1.YML", "JENKIN~1", "GITATT~1", "X~1.COD", "GI7EBA~1",
    "HUSKY~1/pre-commit", ".g\u200cit/config", ".gi\ufefft/config", ".e\u00adnvrc", "．git/config",
    ".ｇｉｔ/config", ".vſcode/tasks.json", ".husKy/x", ".git\\config", "a\\.vscode\\tasks.json",
    ".\u202egit/config",
]  # fmt: skip

#: Written unasked where edits are allowed.
PLAIN = [
    "app.py", "src/main.rs", "README.md", "Makefile", "package.json", "pyproject.toml", "Cargo.toml",
    "tests/conftest.py", "setup.py", ".gitignore", ".github/ISSUE_TEMPLATE.md", ".github/dependabot.yml",
    "docs/git/config", "vscode/tasks.json", "zed/settings.json", "envrc", "git/hooks/x", "hooks/useThing.ts",
    "head/index.tsx", "src/head.py", "HEAD.md", "config", ".env", ".editorconfig", ".prettierrc",
    ".dockerignore", "Dockerfile", "workflows/ci.yml", "ci.yml", "my.code-workspaces", "code-workspace",
    "profile.py", "bashrc", "legit", ".gitx/config", "digit/.gitkeep", ".vscodeignore", "a~b.txt", "notes~",
    "x~1.txt", "naïve.py", "日本語.md", ".github.md", "jenkins/file.py", ".npmignore", "conf.d/pip.txt",
]  # fmt: skip
