"""A byte-level BPE of 2048 tokens, trained on the same text as the models."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers, processors, trainers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

VOCABULARY = 2048
BOS, EOS, PAD = "<|begin|>", "<|end|>", "<|pad|>"
# The models continue text; they were never taught a dialogue. The template only joins the messages.
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['content'] }}"
    "{% if not loop.last %}\n\n{% endif %}{% endfor %}"
)
# Runs of spaces and newlines are tokens of their own: indentation is a third of all code.
PRE_TOKENS = r"\n+[ ]*|[ ]+(?=[ ])|[ ]?[A-Za-z]+|[ ]?[0-9]|[ ]?[^\sA-Za-z0-9]+|\s+"


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Fit the merges on `texts` and wrap them for Hugging Face and vLLM."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[BOS, EOS, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    # A completion starts with the begin token, as it did in training; a chat prompt gets it from the template.
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS, pad_token=PAD, chat_template=CHAT_TEMPLATE
    )
