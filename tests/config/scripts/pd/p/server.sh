# <IP_ADDRESS> P 主节点

python launch_online_dp.py --dp-size 4 --tp-size 8 --dp-size-local 1 --dp-rank-start 0 --dp-address 10.0.0.1 --dp-rpc-port 10521 --vllm-start-port 6600

# <IP_ADDRESS> P 从节点

python launch_online_dp.py --dp-size 4 --tp-size 8 --dp-size-local 1 --dp-rank-start 1 --dp-address 10.0.0.1 --dp-rpc-port 10521 --vllm-start-port 6600

# <IP_ADDRESS> P 从节点

python launch_online_dp.py --dp-size 4 --tp-size 8 --dp-size-local 1 --dp-rank-start 2 --dp-address 10.0.0.1 --dp-rpc-port 10521 --vllm-start-port 6600

# <IP_ADDRESS> P 从节点

python launch_online_dp.py --dp-size 4 --tp-size 8 --dp-size-local 1 --dp-rank-start 3 --dp-address 10.0.0.1 --dp-rpc-port 10521 --vllm-start-port 6600
