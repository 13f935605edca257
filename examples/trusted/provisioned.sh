#!/usr/bin/env bash
# A trusted system on this machine in which no party's process holds a session key: each has a leat-attestd of its own, to which
# leat-provision has handed the keys.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
readonly root
readonly first_client=101 known_clients=9 longest_folder=80

usage() {
  cat <<'HELP'
Usage: provisioned.sh [OPTIONS] SYSTEM [OPTIONS OF ITS CLIENTS]
       provisioned.sh [OPTIONS] --more-epochs N FOLDER
       provisioned.sh --stop FOLDER

Sets up a manufacturer and a vendor, a device for each party, and for each device and epoch a controller, which starts a
leat-attestd and gives it the keys that the vendor hands over by remote attestation. Then starts the parties, each a process with a
signing key of its own, runs clients, shows what the parties have said, ends all processes and removes the folder.

SYSTEM is one of
  counter       a counter kept by replicas, fewer than half of which may lie; client options: --requests, --commands
  chain         a key-value store on a chain of nodes, all but one of which may lie; --keys
  peer_review   a root and its children, whose lies a witness exposes; --requests, --commands
  a2m           a host that keeps a log for a verifier; --entries

Options:
  --folder FOLDER      set it up there and leave it there; must not exist (default: a temporary folder)
  --keep               leave all parties and daemons running until --stop FOLDER; needs --folder (not a2m, whose host ends
                       with its verifier)
  --nodes N            nodes, 2 to 9 (default: 3; a2m has one host)
  --spares N           of chain: nodes that a configuration service puts in the place of others
  --epochs N           epochs that are provisioned ahead, 1 to 99 (default: 1, with spares 3)
  --clients N          clients that run at the same time, 0 to 9 (default: 1; counter 2)
  --lie WHO            the node that lies: see --lie of the SYSTEM's program; counter --lie twice needs two clients
  --user NAME          if root runs this: the user that the daemons become (default: root)
  --build FOLDER       where leat was built (default: build/release of this script's repository)
  --more-epochs N      provision N more epochs of the system that runs in FOLDER
  --stop               end all processes of the system in FOLDER
  -h, --help           this text

In FOLDER are `parties`, the public list of all parties; a folder of each party, with its signing key, its device and, for each
epoch, its daemon's socket, key and log; the folders `ca` and `vendor`. On more than one machine each party has only its own folder
and the list. Files stand for hardware here: docs/remote_attestation.md says what that protects against.

Exit code: 0 if all clients were served, 1 if not or if anything failed, 2 for wrong arguments.
HELP
}

die() {
  echo "provisioned.sh: $*" >&2
  exit 1
}

refuse() {
  echo "provisioned.sh: $* (see --help)" >&2
  exit 2
}

# The end of a log, which goes with a temporary folder.
last_of() {
  tail -n 5 -- "$1"
}

step() {
  printf '== %s\n' "$*"
}

# Checks that $2, the value of the option $1, is a number from $3 to $4.
check_number() {
  if [[ ! $2 =~ ^(0|[1-9][0-9]{0,2})$ ]] || (($2 < $3 || $2 > $4)); then refuse "$1 is a number from $3 to $4, not '$2'"; fi
}

folder='' keep='' nodes='' spares=0 epochs='' clients='' lie='' user='' build=$root/build/release more='' stop='' system=''
while (($# > 0)); do
  case $1 in
    --folder | --nodes | --spares | --epochs | --clients | --lie | --user | --build | --more-epochs)
      (($# > 1)) || refuse "$1 needs a value"
      case $1 in
        --folder) folder=$2 ;;
        --nodes) check_number "$1" "$2" 2 9 && nodes=$2 ;;
        --spares) check_number "$1" "$2" 0 9 && spares=$2 ;;
        --epochs) check_number "$1" "$2" 1 99 && epochs=$2 ;;
        --clients) check_number "$1" "$2" 0 "$known_clients" && clients=$2 ;;
        --lie) lie=$2 ;;
        --user) user=$2 ;;
        --build) build=$2 ;;
        --more-epochs) check_number "$1" "$2" 1 99 && more=$2 ;;
      esac
      shift 2
      ;;
    --keep) keep=yes && shift ;;
    --stop) stop=yes && shift ;;
    -h | --help) usage && exit ;;
    -*) refuse "unknown option $1" ;;
    *) break ;;
  esac
done
(($# > 0)) || refuse "name a system, or a folder for --stop and --more-epochs"

# Each line of FOLDER/processes is of a process that this script started: its number, the time at which it began, and a name. The time
# tells it from a later one with the same number.
start_of() {
  local line fields
  line=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  read -ra fields <<<"${line##*) }"
  [[ ${fields[0]} == Z ]] || echo "${fields[19]}" # a zombie has ended
}

remember() {
  echo "$1 $(start_of "$1") $2" >>"$folder/processes"
}

# Also those that this script was interrupted before it could remember: by the socket or system in their command line.
remember_strays() {
  local process words i
  for process in /proc/[0-9]*; do
    { mapfile -d '' -t words <"$process/cmdline"; } 2>/dev/null || continue
    for ((i = 1; i < ${#words[@]}; ++i)); do
      case ${words[i - 1]} in
        --socket) [[ ${words[i]} == "$folder"/*/*/socket ]] || continue ;;
        --system) [[ ${words[i]} == "$folder" ]] || continue ;;
        *) continue ;;
      esac
      remember "${process#/proc/}" "of ${words[0]}"
    done
  done
}

# Ends all of them, and returns when they have ended.
end_remembered() {
  local pid start name tries
  [[ -f $folder/processes ]] || return 0
  for ((tries = 0; tries < 200; ++tries)); do
    while read -r pid start name; do
      [[ -n $start && $(start_of "$pid") == "$start" ]] || continue
      kill -s "$( ((tries < 100)) && echo TERM || echo KILL)" "$pid" 2>/dev/null || true
      echo "$pid $start $name"
    done <"$folder/processes" >"$folder/processes.left"
    [[ -s $folder/processes.left ]] || break
    sleep 0.05
  done
  rm -f "$folder/processes" "$folder/processes.left"
}

stop_all() {
  trap '' INT TERM HUP # not twice
  remember_strays
  end_remembered
  remember_strays # a kernel that its controller has started meanwhile
  end_remembered
}
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

if [[ -n $stop || -n $more ]]; then
  (($# == 1)) || refuse "name one folder"
  [[ -f $1/parties && -f $1/system ]] || refuse "$1 is not the folder of a system"
  folder=$(realpath -- "$1")
  read -r system known_user <"$folder/system"
  user=${user:-${known_user:-}}
else
  system=$1
  shift
fi
if [[ -n $stop ]]; then
  stop_all
  exit
fi
case $system in
  counter) default_nodes=3 default_clients=2 ;;
  chain | peer_review) default_nodes=3 default_clients=1 ;;
  a2m) default_nodes=1 default_clients=0 ;;
  *) refuse "there is no system '$system'" ;;
esac
[[ -z $keep || $system != a2m ]] || refuse "--keep: the host of a2m serves one verifier, and ends with it"
[[ $system == chain || $spares == 0 ]] || refuse "only chain has spares"
[[ $system != a2m || -z $nodes$clients ]] || refuse "a2m has one host and one verifier"
nodes=${nodes:-$default_nodes} clients=${clients:-$default_clients} epochs=${epochs:-$((spares > 0 ? 3 : 1))}

# A program of the build; of leat's tools also one that is installed.
program() {
  local path=$build/$1
  [[ -x $path || $1 != src/* ]] || path=$(command -v "${1##*/}") || true
  [[ -x $path ]] || die "$build/$1 is not built: cmake --preset release && cmake --build --preset release"
  echo "$path"
}
provision=$(program src/tools/leat-provision)
attestd=$(program src/attestd/leat-attestd)
party=$(program "examples/trusted/$system")
become=()
if ((EUID == 0)); then
  become=(--user "${user:-root}")
elif [[ -n $user ]]; then
  refuse "only root can give the daemons another user"
fi

# Numbers of the parties with these roles.
with_roles() {
  awk -v roles=" $* " 'index(roles, " " $2 " ") { print $1 }' "$folder/parties"
}

# What stands behind $2 in a line of the file $1, once the process $3 has written it there.
said() {
  local tries line
  for ((tries = 0; tries < 600; ++tries)); do
    line=$(sed -n "s/^.*$2//p" "$1")
    if [[ -n $line ]]; then
      echo "$line"
      return
    fi
    kill -0 "$3" 2>/dev/null || break
    sleep 0.05
  done
  cat "$1" >&2
  return 1
}

joined() {
  local IFS=,
  echo "$*"
}

# The group session $1, in which device $2 sends and all other devices receive.
session() {
  local id receivers=()
  for id in "${devices[@]}"; do
    ((id == $2)) || receivers+=("$id")
  done
  echo "{\"id\": $1, \"kind\": \"group\", \"algorithm\": \"hmac-sha256\", \"sender\": $2, \"receivers\": [$(joined "${receivers[@]}")]}"
}

# Boots all devices for the next epoch, and gives their daemons the sessions of that.
provision_epoch() {
  local epoch id place address planned=() sessions=() report
  local -A controller=()
  epoch=$(($(<"$folder/vendor/epoch") + 1))
  for id in "${devices[@]}"; do
    place=$folder/$id/$epoch
    rm -rf "$place" # of a try that ended before this number was given away
    mkdir -m 700 "$place"
    setsid "$provision" device "$folder/$id/device" --vendor-key "$folder/vendor/vendor.pub" -- \
      "$attestd" --controller --socket "$place/socket" "${become[@]}" </dev/null >"$place/log" 2>&1 &
    controller[$id]=$!
    remember "$!" "controller of $id"
  done
  for id in "${devices[@]}"; do
    address=$(said "$folder/$id/$epoch/log" "waits for its vendor at " "${controller[$id]}") || die "device $id does not boot: $(last_of "$folder/$id/$epoch/log")"
    planned+=("{\"device\": $id, \"address\": \"$address\"}")
  done
  if [[ $system == a2m ]]; then
    sessions=("$(session 1 1)" "$(session 2 1)") # MANIFEST and log
  else
    for id in $(with_roles node spare); do sessions+=("$(session "$id" "$id")"); done
  fi
  echo "{\"devices\": [$(joined "${planned[@]}")], \"sessions\": [$(joined "${sessions[@]}")]," \
    "\"kernel\": {\"id\": 1, \"version\": 1, \"program\": \"$attestd\"}}" >"$folder/plan.json"
  report=$("$provision" vendor run "$folder/vendor" --ca "$folder/ca" --plan "$folder/plan.json" --timeout 60) ||
    die "epoch $epoch is lost: its number is not given again, and a chain leaves it out"
  for id in "${devices[@]}"; do
    wait "${controller[$id]}" || die "the controller of device $id has failed: $(last_of "$folder/$id/$epoch/log")"
    remember "$(said "$folder/$id/$epoch/log" "kernel is process " $$)" "daemon of $id"
    # Last, because with its key the daemon is there for its party.
    sed -n "s/^  device $id at .* signs replies with //p" <<<"$report" >"$folder/$id/$epoch/key"
  done
  echo "  epoch $epoch: ${#devices[@]} devices attested and enabled, ${#sessions[@]} sessions"
}

if [[ -n $more ]]; then
  mapfile -t devices < <(with_roles node spare service witness)
  for ((; more > 0; --more)); do provision_epoch; done
  exit
fi

temporary=''
if [[ -z $folder ]]; then
  [[ -z $keep ]] || refuse "--keep needs --folder"
  temporary=$(mktemp -d)
  folder=$temporary
else
  mkdir -m 700 -- "$folder" 2>/dev/null || die "$folder exists already, or cannot be made"
  folder=$(realpath -- "$folder")
fi
clean_up() {
  [[ -n $keep ]] || stop_all
  [[ -z $temporary ]] || rm -rf "$temporary"
}
end=$keep
keep=''
trap clean_up EXIT
((${#folder} <= longest_folder)) || die "the path of $folder is too long for sockets in it"

step "1. Parties with keys of their own, a manufacturer, its devices, and a vendor that trusts them"
arguments=(--nodes "$nodes" --spares "$spares" --clients "$known_clients")
((spares == 0)) || arguments+=(--services 1)
[[ $system != peer_review && $system != a2m ]] || arguments+=(--witnesses 1) # a2m's is the verifier
"$(program examples/trusted/make_parties)" "$folder" "${arguments[@]}"
echo "$system $user" >"$folder/system"
mapfile -t devices < <(with_roles node spare service witness)
# The shell does not end at what fails here, as somebody asks how it went.
set_up() {
  local id
  "$provision" ca init "$folder/ca" && "$provision" vendor init "$folder/vendor" || return
  for id in "${devices[@]}"; do
    "$provision" ca device "$folder/ca" "$folder/$id/device" --device "$id" &&
      "$provision" ca firmware "$folder/$id/device" --vendor-key "$folder/vendor/vendor.pub" || return
  done
  "$provision" vendor allow "$folder/vendor"
}
set_up >"$folder/setup.log" 2>&1 || die "setting up has failed: $(last_of "$folder/setup.log")"

step "2. For each epoch: remote attestation of each device, and session keys for its leat-attestd"
for ((; epochs > 0; --epochs)); do provision_epoch; done

step "3. The parties, each a process with its own key and its own daemon"
lies=()
[[ -z $lie ]] || lies=(--lie "$lie")
servers=("${devices[@]}")
users=()
if [[ $system == a2m ]]; then
  servers=(1)
  users=(2)
fi
for ((id = first_client; id < first_client + clients; ++id)); do users+=("$id"); done
declare -A server
for id in "${servers[@]}"; do
  setsid "$party" --system "$folder" --party "$id" "${lies[@]}" </dev/null >"$folder/$id/said" 2>&1 &
  server[$id]=$!
  remember "$!" "party $id"
done
sleep 0.3
for id in "${servers[@]}"; do
  [[ -n $(start_of "${server[$id]}") ]] || die "party $id has ended: $(<"$folder/$id/said")"
done
[[ $system != a2m ]] || said "$folder/1/said" "listening at " $! >/dev/null || die "the host does not listen"

step "4. What clients get: $system --system $folder --party $(joined "${users[@]}") $*"
running=()
for id in "${users[@]}"; do
  "$party" --system "$folder" --party "$id" "$@" &
  running+=($!)
  remember "$!" "client $id"
done
result=0
for id in "${running[@]}"; do wait "$id" || result=1; done

step "5. What the parties have said"
sleep 0.5 # they may find a lie a little later than clients have their answers
for id in "${servers[@]}"; do sed "s/^/  party $id: /" "$folder/$id/said"; done

keep=$end
if [[ -n $keep ]]; then
  cat <<NEXT
== All of it runs on. Try:
  ${party@Q} --system ${folder@Q} --party $((first_client + known_clients - 1))
  ${BASH_SOURCE[0]@Q} --build ${build@Q} --more-epochs 1 ${folder@Q}
  ${BASH_SOURCE[0]@Q} --stop ${folder@Q}
NEXT
fi
[[ $result == 0 ]]
