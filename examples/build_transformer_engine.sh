#!/bin/sh
# Builds Transformer Engine's extension for PyTorch where there is neither nvcc nor a GPU: the extension is C++ alone.
#
#   sh examples/build_transformer_engine.sh [PYTHON] [VERSION]
#
# PYTHON (default: python) has PyTorch for CUDA 13 or 12 from PyPI; the result goes into its site-packages. It needs g++
# with C++17, Python's headers, about three minutes of one core and 2.5 GB of memory. Transformer Engine publishes the
# CUDA half as a wheel and the PyTorch half as source; that source's own setup compiles 33 files with -O3, which takes
# ten times as long. Here they are compiled as four files without optimisation: the emulation counts the host's work,
# it does not time it. To time the extension, on a GPU or with --host measured, say OPTIMIZE=-O2 (four minutes): without
# optimisation a product takes some 50 us more of the host, a norm 60 us.
set -e
PYTHON=${1:-python} VERSION=${2:-2.20.2}
say() { $PYTHON -c "$1"; }
SITE=$(say 'import sysconfig; print(sysconfig.get_path("purelib"))')
HEADERS=$(say 'import sysconfig; print(sysconfig.get_path("include"))')
TORCH=$(say 'import importlib.util as u, os; print(os.path.dirname(u.find_spec("torch").origin))')
SUFFIX=$(say 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
CUDA=$(sed -n "s/^cuda.*= '\([0-9]*\.[0-9]*\)'.*/\1/p" "$TORCH/version.py")
[ -n "$CUDA" ] || { echo "PyTorch of $PYTHON is not built for CUDA" >&2; exit 1; }
MAJOR=${CUDA%.*}
if [ "$MAJOR" -ge 13 ]; then PARTS="nvidia-cuda-crt==$CUDA.* nvidia-cuda-cccl==$CUDA.*"; else PARTS="nvidia-cuda-nvcc-cu12==$CUDA.* nvidia-cuda-cccl-cu12==$CUDA.*"; fi

$PYTHON -m pip install -q setuptools wheel packaging pybind11 einops pydantic onnx onnxscript nvdlfw-inspect importlib-metadata
# shellcheck disable=SC2086
$PYTHON -m pip install -q --no-deps $PARTS 'nvidia-cudnn-frontend>=1.29'
$PYTHON -m pip install -q --no-deps "transformer_engine_cu$MAJOR==$VERSION" "transformer_engine==$VERSION"

WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
PATH=$(dirname "$(command -v "$PYTHON")"):$PATH $PYTHON -m pip download -q --no-deps --no-build-isolation \
    --no-binary :all: -d "$WORK" "transformer_engine_torch==$VERSION"
tar xzf "$WORK/transformer_engine_torch-$VERSION.tar.gz" -C "$WORK"
SOURCE=$WORK/transformer_engine_torch-$VERSION

# Four compiler runs instead of 33: most of each is PyTorch's headers. NCCL's expert parallelism (ep) is optional.
all_in() { (cd "$SOURCE/csrc" && for file in *.cpp extensions/*.cpp extensions/*/*.cpp; do echo "${file%.cpp}"; done); }
unit() { out=$1; shift; for file in "$@"; do echo "#include \"$SOURCE/csrc/$file.cpp\""; done > "$WORK/$out.cpp"; }
FIRST="common quantizer type_converters extensions/gemm extensions/bias extensions/activation extensions/swizzle"
SECOND="extensions/cast extensions/attention extensions/comm_gemm_overlap"
LAST="extensions/pybind"
# shellcheck disable=SC2046
unit a $FIRST && unit b $SECOND && unit d $LAST &&
    unit c $(all_in | grep -vxE "$(echo $FIRST $SECOND $LAST extensions/ep | tr ' ' '|')")

INCLUDE=""
for folder in "$SITE"/nvidia/cu*/include "$SITE"/nvidia/cu*/include/cccl "$SITE"/nvidia/*/include "$SOURCE"/common_headers \
    "$SOURCE"/common_headers/common "$SOURCE"/common_headers/common/include "$SOURCE"/csrc "$SOURCE"/csrc/extensions \
    "$TORCH"/include "$TORCH"/include/torch/csrc/api/include "$HEADERS"; do
    [ -d "$folder" ] && INCLUDE="$INCLUDE -I$folder"
done
for file in a b c d; do
    # shellcheck disable=SC2086
    ${CXX:-c++} $INCLUDE "${OPTIMIZE:--O0}" -w -fPIC -fvisibility=hidden -DNDEBUG -DTORCH_API_INCLUDE_EXTENSION_H \
        -DTORCH_EXTENSION_NAME=transformer_engine_torch -std=c++17 -c "$WORK/$file.cpp" -o "$WORK/$file.o"
done
${CXX:-c++} -shared "$WORK"/a.o "$WORK"/b.o "$WORK"/c.o "$WORK"/d.o -L"$TORCH/lib" -lc10 -ltorch -ltorch_cpu \
    -ltorch_python -o "$SITE/transformer_engine_torch$SUFFIX"

# Transformer Engine asks for the package's version before it loads the extension.
DIST=$SITE/transformer_engine_torch-$VERSION.dist-info
mkdir -p "$DIST"
printf 'Metadata-Version: 2.1\nName: transformer_engine_torch\nVersion: %s\n' "$VERSION" > "$DIST/METADATA"
printf 'Wheel-Version: 1.0\nGenerator: build_transformer_engine\nRoot-Is-Purelib: false\n' > "$DIST/WHEEL"
printf '%s\n' "transformer_engine_torch$SUFFIX,," "transformer_engine_torch-$VERSION.dist-info/METADATA,," \
    "transformer_engine_torch-$VERSION.dist-info/WHEEL,," "transformer_engine_torch-$VERSION.dist-info/RECORD,," \
    > "$DIST/RECORD"
echo "built $SITE/transformer_engine_torch$SUFFIX"
