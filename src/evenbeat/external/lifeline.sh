# The watcher beside a worker that runs commands: reads "+ group" and "- group" on standard input until
# the worker is gone, however it went; then ends the process groups that are left.
left=" "
while read -r sign group; do
  case $sign in
    +) left="$left$group " ;;
    -) case $left in *" $group "*) left="${left%% $group *} ${left#* $group }" ;; esac ;;
  esac
done
for group in $left; do kill -s KILL -- "-$group"; done
