# Sourced by the scripts beside this folder: installs what is missing, configures and builds. All of
# it says what it does on stderr, and nothing while there is nothing to do.

repository=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)

# The interpreter that Debian's and Ubuntu's Python packages belong to.
python=/usr/bin/python3

# The tests' libraries are among them because the presets configure the tests too.
build_packages=(ca-certificates cmake g++ git ninja-build
  libcli11-dev libfmt-dev libgmock-dev libgtest-dev libhwy-dev libopenblas-pthread-dev
  libvalijson-dev libxxhash-dev nlohmann-json3-dev)
plot_packages=(python3 python3-matplotlib python3-numpy python3-pandas)
test_packages=(clang-14 clang-format-14 libclang-rt-14-dev python3-jsonschema python3-pytest
  python3-pytest-xdist "${plot_packages[@]}")

# What fetches the headers of cudnn-frontend.
fetch_packages=(python3 python3-pip)

# Packages that some releases do not have; what needs them says that it is left out.
optional_packages=(clang-14 clang-format-14 libclang-rt-14-dev)

say() {
  echo "flashbench: $*" >&2
}

die() {
  say "$@"
  exit 1
}

# Lets one set-up or build run at a time, until unlock or the end of the shell; the next one waits.
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

# Those of the named packages that are not installed.
missing_packages() {
  local package installed
  # A package that dpkg has never heard of is an error, and no line.
  installed=$(dpkg-query -W -f '${Package}=${db:Status-Status}\n' "$@" 2>/dev/null || true)
  for package in "$@"; do
    [[ $'\n'$installed$'\n' == *$'\n'$package=installed$'\n'* ]] || echo "$package"
  done
}

# The named packages without the optional ones that apt does not know.
known_packages() {
  local package
  for package in "$@"; do
    if [[ " ${optional_packages[*]} " != *" $package "* ]] ||
      apt-cache show "$package" >/dev/null 2>&1; then
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
  local missing wanted
  if ! command -v dpkg-query >/dev/null; then
    say "not Debian or Ubuntu: expecting the libraries that CMake asks for to be installed"
    return
  fi
  mapfile -t missing < <(missing_packages "$@")
  mapfile -t wanted < <(known_packages "${missing[@]}")
  ((${#wanted[@]} > 0)) || return 0

  local by_hand="as root, run:
  apt-get update && apt-get install --no-install-recommends ${wanted[*]}"
  if ((EUID != 0)) && ! command -v sudo >/dev/null; then
    die "packages are missing, and there is neither root nor sudo to install them: $by_hand"
  fi
  say "installing ${wanted[*]}"
  as_root apt-get update || say "apt-get update failed; going on with the lists that are there"
  mapfile -t wanted < <(known_packages "${missing[@]}")  # which the new lists may have more of
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
    -o DPkg::Lock::Timeout=600 "${wanted[@]}" || die "could not install packages: $by_hand"
}

# Everything that a build needs, cudnn-frontend included where there is a CUDA toolkit.
install_build_packages() {
  if command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]]; then
    install_packages "${build_packages[@]}" "${fetch_packages[@]}" "$@"
    fetch_cudnn_frontend
  else
    install_packages "${build_packages[@]}" "$@"
  fi
}

cudnn_frontend_version=$(sed -n 's/^set(cudnn_frontend_version \(.*\))$/\1/p' "$repository/cmake/cudnn.cmake")
cudnn_frontend=$repository/build/third_party/cudnn-frontend-$cudnn_frontend_version

# The headers from its PyPI package, where cmake/cudnn.cmake looks for them: any of its wheels has them,
# whatever Python and processor it is for. Without them a build leaves the provider cudnn out.
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

# configure PRESET: ninja itself configures again when a CMake file changes, but not when a preset does,
# or when headers are there that were not.
configure() {
  local build=$repository/build/$1
  [[ $build/build.ninja -nt $repository/CMakePresets.json &&
    ! $cudnn_frontend -nt $build/build.ninja ]] && return
  say "configuring build/$1"
  run_logged "$build.configure.log" cmake --preset "$1"
  touch "$build/build.ninja"
}

# build PRESET TARGET...
build() {
  local preset=$1
  shift
  run_logged "$repository/build/$preset.build.log" \
    cmake --build --preset "$preset" --target "$@"
}

# Runs a command in the repository with its output in a file, and shows that if it fails.
run_logged() {
  local log=$1
  shift
  if ! (cd "$repository" && "$@") >"$log" 2>&1; then
    cat "$log" >&2
    die "failed: $*"
  fi
}
