"""The architectures that are shipped."""

from __future__ import annotations

from transformers import LlamaConfig

from avbench.reference.dspark_checkpoint import DSparkShape

CONTEXT = 1024


def target_config(vocabulary: int) -> LlamaConfig:
    """About 10 M parameters: few wide layers, since a CPU step pays per layer."""
    return _config(vocabulary, hidden=512, layers=4, heads=8, kv_heads=2, ffn=1024)


def draft_config(vocabulary: int) -> LlamaConfig:
    """About 0.6 M parameters, two thirds of them outside the embedding."""
    return _config(vocabulary, hidden=128, layers=2, heads=4, kv_heads=2, ffn=352)


def dspark_shape(vocabulary: int) -> DSparkShape:
    """About 1.8 M parameters: a block of 7 drafts in one pass, with a confidence head."""
    target = target_config(vocabulary)
    return DSparkShape(
        block_size=7,
        vocab_size=vocabulary,
        target_hidden_size=target.hidden_size,
        tap_layer=1,
        hidden_size=256,
        intermediate_size=512,
        num_blocks=1,
        rank=128,
        markov_rank=64,
        enable_confidence_head=True,
    )


def _config(vocabulary: int, *, hidden: int, layers: int, heads: int, kv_heads: int, ffn: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=hidden // heads,
        intermediate_size=ffn,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
        rms_norm_eps=1e-5,
    )
