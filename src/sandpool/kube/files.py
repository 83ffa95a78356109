"""Reading the files that a configuration names, with errors that say which one, why it was wanted and what to do."""

from __future__ import annotations

from pathlib import Path

from sandpool.kube.errors import ConfigError


def read_text(path: Path, what: str, hint: str) -> str:
    """The text of `path`. `what` says why it was wanted, `hint` what to do when it cannot be had."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: {what} is not there; {hint}") from None
    except PermissionError:
        raise ConfigError(f"{path}: {what} may not be read by this user; change its mode or owner, or {hint}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: {what} should be a file but is a directory; {hint}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: {what} is not text; {hint}") from None
    except OSError as error:
        raise ConfigError(f"{path}: {what} cannot be read ({error.strerror}); {hint}") from None
