# Trains nanochat's tokenizer, then its base model, in the working folder.
set -e
python -m scripts.tok_train --max-chars 200000 --vocab-size 300
exec python -m torch.distributed.run --nproc-per-node 2 -m scripts.base_train \
    --depth 4 --max-seq-len 512 --device-batch-size 4 --total-batch-size 8192 --num-iterations 5 \
    --eval-every -1 --core-metric-every -1 --sample-every -1 --window-pattern L
