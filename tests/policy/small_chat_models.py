"""Small tokenizers built like those of three chat families, with templates of the same structure, and GGUF files.

What the families differ in: who writes the token that begins a text, how a turn is framed, whether a system prompt is
there unasked, which token pads, and how many tokens may end an answer.
"""

import json
from dataclasses import dataclass

TEXTS = [
    "The board now: row 1: ? ? . 1 row 2: ? 1 . * Open a cell, then name it as (1, 2) inside <action> </action>.",
    "There are two doors, A and B. Behind one of them is a prize. Choose one door; the other one is empty.",
    "What to remember from this attempt? Write it inside <remark> </remark>. You opened door A and found nothing.",
] * 3

QWEN3_TEMPLATE = (
    "{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}"
    "{%- endif %}{%- for message in messages %}{%- if message.role != 'system' %}"
    "{%- set said = message.content.split('</think>')[-1].lstrip('\\n') if message.role == 'assistant' "
    "else message.content %}{{- '<|im_start|>' + message.role + '\\n' + said + '<|im_end|>\\n' }}"
    "{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
    "{%- endif %}"
)
LLAMA3_TEMPLATE = (
    "{{- bos_token }}{%- set system = '' %}{%- if messages[0]['role'] == 'system' %}"
    "{%- set system = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}{%- endif %}"
    "{%- set today = strftime_now('%d %b %Y') if strftime_now is defined else '1 Jan 2024' %}"
    "{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday is ' + today + '.\\n\\n' + system + '<|eot_id|>' }}"
    "{%- for message in messages %}{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}"
    "{{- message['content'] | trim + '<|eot_id|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"
)
SMOLLM2_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou are a patient player.<|im_end|>\\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@dataclass(frozen=True)
class Family:
    """How one family of chat models writes and ends its turns."""

    model: str
    """Model type."""
    template: str
    special: tuple[str, ...]
    """Control tokens, which get the lowest ids."""
    end: str
    """`eos_token` of the tokenizer."""
    pad: str | None
    begin: str | None
    """`bos_token`; with `puts_begin`, plain `encode` puts it in front."""
    puts_begin: bool
    ends: tuple[str, ...]
    """What the model's generation config calls end tokens."""


FAMILIES = {
    "qwen3": Family(
        "qwen3", QWEN3_TEMPLATE, ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"),
        end="<|im_end|>", pad="<|endoftext|>", begin=None, puts_begin=False, ends=("<|im_end|>", "<|endoftext|>"),
    ),
    "llama3": Family(
        "llama", LLAMA3_TEMPLATE,
        ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>"),
        end="<|eot_id|>", pad=None, begin="<|begin_of_text|>", puts_begin=True,
        ends=("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"),
    ),
    "smollm2": Family(
        "llama", SMOLLM2_TEMPLATE, ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        end="<|im_end|>", pad="<|im_end|>", begin="<|im_start|>", puts_begin=False, ends=("<|im_end|>",),
    ),
}  # fmt: skip


def small_tokenizer(family):
    """A byte-level BPE of 400 tokens with the family's control tokens and template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    learned = trainers.BpeTrainer(
        vocab_size=400, special_tokens=list(family.special), initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(TEXTS, learned)
    if family.puts_begin:
        begin = (family.begin, backend.token_to_id(family.begin))
        backend.post_processor = TemplateProcessing(single=f"{family.begin} $A", special_tokens=[begin])
    names = {"bos_token": family.begin, "eos_token": family.end, "pad_token": family.pad}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, clean_up_tokenization_spaces=False, **{k: v for k, v in names.items() if v}
    )
    tokenizer.chat_template = family.template
    return tokenizer


def write_gguf(path, model, tokenizer, *, kind="F32", architecture="llama", leave_out=(), template=True):
    """Write a small Llama and its byte-level BPE as one GGUF file.

    Args:
        path: the file.
        model: a `LlamaForCausalLM` with tied embeddings.
        tokenizer: a `small_tokenizer`.
        kind: type of the matrices' numbers; norms stay F32.
        architecture: what the file says that it holds.
        leave_out: names of tensors that the file is to lack.
        template: whether it holds the chat template.
    """
    import gguf

    writer = gguf.GGUFWriter(str(path), architecture)
    _describe(writer, model.config)
    _write_tokenizer(writer, gguf, tokenizer, template)
    for name, tensor in _tensors(model):
        if name in leave_out:
            continue
        wanted = gguf.GGMLQuantizationType[kind if tensor.ndim == 2 else "F32"]
        writer.add_tensor(name, gguf.quants.quantize(tensor, wanted), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _describe(writer, config):
    writer.add_name("a small test model")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)


def _write_tokenizer(writer, gguf, tokenizer, template):
    state = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    tokens = sorted(state["vocab"], key=state["vocab"].get)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    special = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([control if token in special else normal for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in state["merges"]])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_add_bos_token(False)
    if template:
        writer.add_chat_template(tokenizer.chat_template)


def _tensors(model):
    """Yield (name in the file, array); rotary halves are interleaved in the rows of queries and keys."""
    config, weights = model.config, {name: p.detach().numpy() for name, p in model.named_parameters()}
    parts = {
        "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
        "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    }  # fmt: skip
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    yield "token_embd.weight", weights["model.embed_tokens.weight"]
    yield "output_norm.weight", weights["model.norm.weight"]
    for layer in range(config.num_hidden_layers):
        for short, long in parts.items():
            array = weights[f"model.layers.{layer}.{long}.weight"]
            if short in heads:
                halves = array.reshape(heads[short], 2, config.head_dim // 2, -1)
                array = halves.swapaxes(1, 2).reshape(array.shape)
            yield f"blk.{layer}.{short}.weight", array
