"""Writes a language model of half a megabyte that vLLM and transformers load, with random weights.

    python tests/ray/programs/llm_model.py FOLDER

Each byte of a text is one token, so counts of tokens are known beforehand. Needs torch, safetensors and tokenizers,
which vLLM has.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

SPECIAL = ("<pad>", "<s>", "</s>", "<user>", "<assistant>", "<system>", "<end>", "<unused>")
TEMPLATE = (
    "<s>{% for m in messages %}{{ '<' + m['role'] + '>' }}{{ m['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
AROUND = 4
"""Tokens that the template adds to a single message: the start, the role, the end and the role of the answer."""

HIDDEN, INNER, LAYERS, WORDS = 64, 128, 2, 264


def write(folder: Path) -> None:
    """Write the model into a folder."""
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate([*SPECIAL, *letters])}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    texts = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "chat_template": TEMPLATE}
    dump(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast", model_max_length=100_000, **texts)
    dump(folder / "generation_config.json", **special)
    dump(
        folder / "config.json",
        architectures=["LlamaForCausalLM"],
        model_type="llama",
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=HIDDEN // 2,
        vocab_size=WORDS,
        max_position_embeddings=32_768,
        torch_dtype="float32",
        tie_word_embeddings=False,
        **special,
    )
    random = torch.Generator().manual_seed(7)

    def made(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape, generator=random) * 0.4).contiguous()

    weights = {"model.embed_tokens.weight": made(WORDS, HIDDEN), "lm_head.weight": made(WORDS, HIDDEN)}
    weights["model.norm.weight"] = torch.ones(HIDDEN)
    for i in range(LAYERS):
        for name in ("q", "k", "v", "o"):
            weights[f"model.layers.{i}.self_attn.{name}_proj.weight"] = made(HIDDEN, HIDDEN)
        for name, shape in {"gate": (INNER, HIDDEN), "up": (INNER, HIDDEN), "down": (HIDDEN, INNER)}.items():
            weights[f"model.layers.{i}.mlp.{name}_proj.weight"] = made(*shape)
        for name in ("input", "post_attention"):
            weights[f"model.layers.{i}.{name}_layernorm.weight"] = torch.ones(HIDDEN)
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})


def dump(path: Path, **values: object) -> None:
    path.write_text(json.dumps(values))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
