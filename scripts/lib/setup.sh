# Sourced by the scripts in the folder above: installs missing packages, configures and builds.
# Everything reports on stderr what it does, and prints nothing if there is nothing to do.

repository=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)

# The interpreter for Debian's and Ubuntu's Python packages.
python=/usr/bin/python3

build_packages=(ca-certificates cmake g++ ninja-build
  libcli11-dev libfmt-dev libhwy-dev libopenblas0-pthread libxxhash-dev nlohmann-json3-dev
  zlib1g-dev)
plot_packages=(python3 python3-matplotlib python3-numpy python3-pandas)
# Packages needed to fetch from PyPI: the headers of cudnn-frontend, and the tools of scripts/check.
fetch_packages=(python3 python3-pip)
test_packages=(git libgmock-dev libgtest-dev clang libclang-rt-dev
  python3-jsonschema python3-pytest python3-pytest-xdist python3-yaml "${fetch_packages[@]}" "${plot_packages[@]}")

# Packages that some releases lack; the parts that need them say that they are left out.
optional_packages=(clang libclang-rt-dev)

say() {
  echo "flashbench: $*" >&2
}

die() {
  say "$@"
  exit 1
}

# Allows one set-up or build at a time, until unlock or the end of the shell; others wait.
lock() {
  mkdir -p "$repository/build"
  exec 9>"$repository/build/.lock"
  if ! flock --nonblock 9; then
    say "waiting for another build of this folder"
    flock 9
  fi
}

unlock() {
  exec 9>&-
}

# Prints the named packages that are not installed.
missing_packages() {
  local package installed
  # For a package unknown to dpkg, dpkg-query fails and prints no line.
  installed=$(dpkg-query -W -f '${Package}=${db:Status-Status}\n' "$@" 2>/dev/null || true)
  for package in "$@"; do
    [[ $'\n'$installed$'\n' == *$'\n'$package=installed$'\n'* ]] || echo "$package"
  done
}

# Whether apt can install a package. Without package lists it cannot.
apt_has() {
  [[ -n $(apt-cache madison "$1" 2>/dev/null) ]]
}

# Prints the named packages without the optional ones that apt does not have.
wanted_packages() {
  local package
  for package in "$@"; do
    if [[ " ${optional_packages[*]} " != *" $package "* ]] || apt_has "$package"; then
      echo "$package"
    fi
  done
}

# Runs a command as root, quietly: its output is shown only if it fails.
as_root() {
  local log status=0
  log=$(mktemp)
  if ((EUID == 0)); then
    "$@" >"$log" 2>&1 || status=$?
  else
    sudo "$@" >"$log" 2>&1 || status=$?
  fi
  ((status == 0)) || cat "$log" >&2
  rm -f "$log"
  return "$status"
}

install_packages() {
  local missing wanted package
  if ! command -v dpkg-query >/dev/null; then
    say "not Debian or Ubuntu: expecting the libraries that CMake asks for to be installed"
    return
  fi
  mapfile -t missing < <(missing_packages "$@")
  mapfile -t wanted < <(wanted_packages "${missing[@]}")
  ((${#missing[@]} > 0)) || return 0
  if ((${#wanted[@]} == 0)) && apt_has g++; then
    return 0  # only optional packages that this release lacks
  fi

  local by_hand="as root, run:
  apt-get update && apt-get install --no-install-recommends ${missing[*]}"
  if ((EUID != 0)) && ! command -v sudo >/dev/null; then
    die "packages are missing, and there is neither root nor sudo to install them: $by_hand"
  fi
  as_root apt-get update -o APT::Update::Error-Mode=any ||
    say "apt-get update failed; going on with the lists that are there"
  mapfile -t wanted < <(wanted_packages "${missing[@]}")
  for package in "${wanted[@]}"; do
    apt_has "$package" || die "apt has no package $package: is there a network, and are the sources right?"
  done
  ((${#wanted[@]} > 0)) || return 0
  say "installing ${wanted[*]}"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
    -o DPkg::Lock::Timeout=600 "${wanted[@]}" || die "could not install packages: $by_hand"
}

# Installs everything that a build needs; cudnn-frontend only if the build is for GPUs.
install_build_packages() {
  if builds_for_gpus; then
    install_packages "${build_packages[@]}" "${fetch_packages[@]}" "$@"
    fetch_cudnn_frontend
  else
    install_packages "${build_packages[@]}" "$@"
  fi
  fetch_valijson
}

# The same decision as in cmake/cuda.cmake.
builds_for_gpus() {
  { command -v nvcc || [[ -x /usr/local/cuda/bin/nvcc ]]; } >/dev/null && nvidia-smi -L >/dev/null 2>&1
}

valijson=$repository/build/third_party/valijson

# Fetches the headers from valijson's package to where cmake/dependencies.cmake looks for them.
# Installing the package would bring 180 others: every JSON library that it can read.
fetch_valijson() {
  local temporary
  [[ ! -e $valijson && ! -e /usr/include/valijson ]] && command -v apt-get >/dev/null || return 0
  mkdir -p "${valijson%/*}"
  temporary=$(mktemp -d "${valijson%/*}/XXXXXX")
  if (cd "$temporary" && apt-get download -qq -o APT::Sandbox::User=root libvalijson-dev && dpkg-deb -x ./*.deb unpacked) >&2; then
    mv "$temporary/unpacked" "$valijson"
    rm -rf "$temporary"
  else
    rm -rf "$temporary"
    die "could not fetch the package libvalijson-dev"
  fi
}

cudnn_frontend_version=$(sed -n 's/^set(cudnn_frontend_version \(.*\))$/\1/p' "$repository/cmake/cudnn.cmake")
cudnn_frontend=$repository/build/third_party/cudnn-frontend-$cudnn_frontend_version

# Fetches the headers from the PyPI package to where cmake/cudnn.cmake looks for them. Every wheel
# has them, whatever its Python and processor. Without them a build leaves the provider cudnn out.
fetch_cudnn_frontend() {
  local package=nvidia-cudnn-frontend==$cudnn_frontend_version temporary
  [[ ! -e $cudnn_frontend/include/cudnn_frontend.h ]] || return 0
  say "fetching $package"
  mkdir -p "${cudnn_frontend%/*}"
  temporary=$(mktemp -d "${cudnn_frontend%/*}/XXXXXX")
  if "$python" -m pip download --quiet --disable-pip-version-check --retries 0 --timeout 20 --no-deps --only-binary :all: \
    --python-version 3.12 --platform manylinux_2_28_x86_64 --dest "$temporary" "$package" &&
    "$python" -m zipfile -e "$temporary"/*.whl "$temporary/unpacked"; then
    mv "$temporary/unpacked" "$cudnn_frontend"
  else
    say "could not fetch $package: the provider cudnn is left out"
  fi
  rm -rf "$temporary"
}

# fetch_tool NAME VERSION FILE: prints the path of a file in a package of PyPI, which is fetched once.
fetch_tool() {
  local folder=$repository/build/third_party/$1-$2
  if [[ ! -x $folder/$3 ]]; then
    say "fetching $1 $2"
    rm -rf "$folder"
    "$python" -m pip install --quiet --root-user-action ignore --disable-pip-version-check --retries 0 --timeout 20 --no-deps \
      --only-binary :all: --target "$folder" "$1==$2" >&2 || die "could not fetch $1 $2 from PyPI, by $python -m pip"
  fi
  echo "$folder/$3"
}

# configure PRESET [-DNAME=VALUE...]: ninja reconfigures by itself when a CMake file changes, but
# not when a preset, a value or the set of installed headers does. Reports the decisions about CUDA
# and cuDNN.
configure() {
  local build=$repository/build/$1
  ! is_configured "$build" "${@:2}" || return 0
  run_logged "$build.configure.log" "configuring build/$1" cmake --preset "$@"
  grep -E '^-- (CUDA|CUPTI|cuDNN): ' "$build.configure.log" | sed 's/^-- //' >&2 || true
  touch "$build/build.ninja"
}

is_configured() {
  local build=$1 value
  [[ $build/build.ninja -nt $repository/CMakePresets.json && ! $cudnn_frontend -nt $build/build.ninja ]] || return
  for value in "${@:2}"; do
    sed 's/:[A-Z]*=/=/' "$build/CMakeCache.txt" | grep -qx -e "${value#-D}" || return
  done
}

# build PRESET TARGET...
build() {
  local preset=$1
  shift
  run_logged "$repository/build/$preset.build.log" "building build/$preset" \
    cmake --build --preset "$preset" --target "$@"
}

# run_logged LOG WHAT COMMAND...: runs a command in the repository with its output in a file; shows
# the progress from that file, and the first error if it fails.
run_logged() {
  local log=$1 what=$2 status=0
  shift 2
  : >"$log"
  show_progress "$log" "$what" &
  local progress=$!
  (cd "$repository" && "$@") >"$log" 2>&1 || status=$?
  kill "$progress" 2>/dev/null && wait "$progress" 2>/dev/null || true
  [[ ! -t 2 ]] || printf '\r\033[K' >&2
  if ((status != 0)); then
    first_error "$log" >&2
    die "failed: $* (all of its output: $log)"
  fi
}

# Shows the last line of the log: in place on a terminal, else now and then. Shows nothing for short
# work.
show_progress() {
  local log=$1 what=$2 line seconds=20
  [[ ! -t 2 ]] || seconds=0.5
  pause 1
  say "$what"
  while pause "$seconds" && kill -0 $$ 2>/dev/null; do
    line=$(tail -n 1 "$log")
    if [[ -t 2 ]]; then
      printf '\r\033[K%s' "${line:0:$(($(tput cols 2>/dev/null || echo 80) - 1))}" >&2
    else
      printf '%s\n' "$line" >&2
    fi
  done
}

# Sleeps without holding files open that the script's caller might wait for.
pause() {
  sleep "$1" </dev/null >/dev/null 2>&1 9>&-
}

# Prints the first error message of ninja or CMake, or the end of the log if there is none.
first_error() {
  local error
  error=$(awk '/^FAILED: |^CMake Error/ { if (found++) exit } found && !/^\[[0-9]+\/[0-9]+\]/' "$1" | head -n 60)
  printf '%s\n' "${error:-$(tail -n 40 "$1")}"
}
