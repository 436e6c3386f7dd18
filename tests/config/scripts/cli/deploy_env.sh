#!/bin/bash
# Values of every deployment; the command line tool takes those of the role that it is given.

export YUANRONG_WORKER_PORT=32451
export ETCD_CLIENT_PORT=35440

export MODEL_PATH="/models/Qwen2.5-7B-Instruct"
export PROXY_SERVER_SCRIPT="/opt/vllm-ascend/examples/load_balance_proxy_server_example.py"

export LOG_PATH="/var/log/kv"
export VLLM_LOG_FILE="${LOG_PATH}/vllm.txt"
export DATASYSTEM_CLIENT_LOG_DIR="${LOG_PATH}/client_logs"

export VISIBLE_DEVICES="0,1,2,3"
export TENSOR_PARALLEL_SIZE=2
export GPU_MEMORY_UTILIZATION=0.9
export MAX_NUM_BATCHED_TOKENS=45000
export SHARED_MEMORY_MB=614400

export LD_LIBRARY_PATH=/usr/local/lib/datasystem:$LD_LIBRARY_PATH
export USING_PREFIX_CONNECTOR=0
export VLLM_USE_V1=1
export HCL_OP_EXPANSION_MODE="AIV"

# one node
export MERGED_HOST_IP="10.0.1.1"
export MERGED_ETCD_IP="${MERGED_HOST_IP}"
export MERGED_VLLM_PORT=18300
export MERGED_KV_CONFIG='{"kv_connector":"YuanRongConnector","kv_role":"kv_both"}'
export MERGED_VLLM_EXTRA_ARGS=()
export MERGED_VLLM_EXTRA_ARGS=(
    "--no-enable-prefix-caching"
    "--seed" "1024"
    "--served-model-name" "qwen"
    "--max-num-batched-tokens" "40000"
    "--trust-remote-code"
    # media
    "--allowed-local-media-path" "$MODEL_PATH"
    "--additional-config" '{"ascend_scheduler_config":{"enabled":true}}'
)

# prefill and decode apart
export PRIMARY_HOST_IP="10.0.1.1"
export PRIMARY_ETCD_IP="${PRIMARY_HOST_IP}"
export PRIMARY_VLLM_PORT=18300
export PRIMARY_PROXY_PORT=18500
export PRIMARY_KV_CONFIG='{"kv_connector":"YuanRongConnector","kv_role":"kv_producer"}'
export PRIMARY_VLLM_EXTRA_ARGS=(
    "--seed" "1024"
    "--served-model-name" "qwen"
    "--trust-remote-code"
    "--additional-config" '{"ascend_scheduler_config":{"enabled":true}}'
)
export SECONDARY_HOST_IP="10.0.1.2"
export SECONDARY_VLLM_PORT=18301
export SECONDARY_KV_CONFIG='{"kv_connector":"YuanRongConnector","kv_role":"kv_consumer"}'
export SECONDARY_VLLM_EXTRA_ARGS=(
    "--seed" "1024"
    "--served-model-name" "qwen"
    "--max-num-seqs" "32"
)

export PROXY_PREFILL_HOST="${PRIMARY_HOST_IP}"
export PROXY_PREFILL_PORT="${PRIMARY_VLLM_PORT}"
export PROXY_DECODE_HOST="${SECONDARY_HOST_IP}"
export PROXY_DECODE_PORT="${SECONDARY_VLLM_PORT}"
