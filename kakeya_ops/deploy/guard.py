"""Watches from the host's own side over a service that is being exchanged.

Between its bootout and the bootstrap of what follows, a service is nobody's: should the connection, or this program, be
lost for good just then, it would stay down. So before that a small process is left on the host. While it hears from us
it does nothing; after a silence it loads the old property list again, unless a service is loaded, and says so in the
audit log. A service that was loaded before the silence is left as it is, proved or not.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field

from kakeya_ops.launchd import Domain
from kakeya_ops.observe.places import Places
from kakeya_ops.remote.runner import Runner

PREFIX = "guard-"
"""Of the folders in the install root, one for each guard; without its folder a guard ends."""
_ROUNDS = 10
_TRIES = 60
_BEATS = 6
_WATCH = r"""
folder=$1 plist=$2 domain=$3 label=$4 audit=$5 rounds=$6 pause=$7 tries=$8
uid=$(id -u) heard= silent=0
while [ "$silent" -lt "$rounds" ]; do
  [ -d "$folder" ] || exit 0
  now=$(cat "$folder/beat")
  if [ "$now" = "$heard" ]; then silent=$((silent + 1)); else heard=$now silent=0; fi
  sleep "$pause"
done
# Of this and of what the operator does to stand it down, one succeeds.
fired=$folder.fired
mv "$folder" "$fired" || exit 0
find_loaded() {
  for kind in gui user; do
    found=$(launchctl print "$kind/$uid/$label" 2>/dev/null) || continue
    case $found in *"state = SIG"*) echo leaving ;; *) echo loaded ;; esac
  done
}
outcome="left as it is"
while [ "$tries" -gt 0 ]; do
  [ -d "$fired" ] || exit 0
  case $(find_loaded) in
    *loaded*) break ;;
    "") outcome="not restored"
      cp "$fired/old.plist" "$plist.part" && chmod 644 "$plist.part" && mv -f "$plist.part" "$plist"
      launchctl enable "$domain/$label"
      launchctl bootstrap "$domain" "$plist" && launchctl kickstart "$domain/$label"
      case $(find_loaded) in *loaded*) outcome=restored; break ;; esac ;;
  esac
  tries=$((tries - 1))
  sleep "$pause"
done
umask 077
printf '{"time": %s, "action": "guard", "outcome": "%s", "who": "the host itself", "reason": "%s"}\n' \
  "$(date +%s)" "$outcome" "whoever was changing the service was not heard of any more" >> "$audit"
rm -rf -- "$fired"
"""
_ARM = r"""
umask 077
mkdir "$1" && cat > "$1/watch.sh" && cp "$2" "$1/old.plist" && echo 0 > "$1/beat" || exit 1
nohup /bin/sh "$1/watch.sh" "$@" </dev/null >/dev/null 2>&1 &
"""
_BEAT = '[ -d "$1" ] && echo "$2" > "$1/beat"'
_STAND_DOWN = 'mv "$1" "$1.down" && rm -rf -- "$1.down"'


@dataclass
class Guard:
    """One guard, armed. `silence_seconds` is how long it hears nothing before it acts."""

    runner: Runner
    folder: str
    silence_seconds: float
    _beats: int = 0
    _last: float = field(default_factory=time.monotonic)

    def beat(self) -> None:
        """Let it know that we are here; does so often enough, however often it is called."""
        if time.monotonic() - self._last < self.silence_seconds / _BEATS:
            return
        self._beats += 1
        self.runner.run(["/bin/sh", "-c", _BEAT, "sh", self.folder, str(self._beats)])
        self._last = time.monotonic()

    def stand_down(self) -> bool:
        """Send it away; False when it has acted already."""
        return self.runner.run(["/bin/sh", "-c", _STAND_DOWN, "sh", self.folder]).status == 0


def arm(runner: Runner, places: Places, domain: Domain, silence_seconds: float) -> Guard:
    """Leave a guard on the host, over the service that is loaded in `domain` from the property list in its place."""
    folder = f"{places.root}/{PREFIX}{secrets.token_hex(6)}"
    numbers = (str(_ROUNDS), str(silence_seconds / _ROUNDS), str(_TRIES))
    arguments = (folder, places.plist, domain.target, places.label, places.audit, *numbers)
    runner.run(["/bin/sh", "-c", _ARM, "sh", *arguments], input=_WATCH.encode(), check=True)
    return Guard(runner, folder, silence_seconds)


__all__ = ["PREFIX", "Guard", "arm"]
