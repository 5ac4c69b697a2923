"""Words of neighbouring tools (Hugging Face Trainer, TRL, vLLM, verl) and what to use for them here.

One table for flags, YAML keys and keywords of `train`. A name that only differs is in `_RENAMED`; where something else
is needed, `_ADVICE` says it in a sentence. Names of our settings are written `--like_this` in the sentences.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from metarl_agents.presets import launcher_file

_RENAMED = {
    "learning_rate": "lr actor_lr policy_lr actor_learning_rate",
    "critic_learning_rate": "critic_lr value_lr vf_lr",
    "lr_scheduler_type": "lr_scheduler scheduler lr_schedule",
    "warmup_steps": "lr_warmup_steps num_warmup_steps",
    "max_grad_norm": "grad_clip gradient_clipping clip_grad_norm clip_grad",
    "weight_decay": "wd",
    "model_name_or_path": "model model_name model_id model_path base_model pretrained_model_name_or_path checkpoint",
    "dtype": "torch_dtype model_dtype precision",
    "attn_implementation": "attn attn_impl use_flash_attention_2 flash_attention flash_attn",
    "use_peft": "use_lora lora peft qlora use_qlora",
    "lora_r": "lora_rank lora_dim rank",
    "lora_target_modules": "target_modules lora_modules peft_target_modules",
    "gradient_checkpointing": "use_gradient_checkpointing activation_checkpointing",
    "max_new_tokens_per_turn": (
        "max_completion_length max_new_tokens max_tokens response_length max_response_length generation_max_length "
        "generate_max_len"
    ),
    "max_prompt_tokens": "max_prompt_length prompt_max_len max_input_length",
    "group_size": "n_samples_per_prompt rollout_n rollouts_per_prompt num_rollouts num_samples",
    "tasks_per_step": "batch_size train_batch_size rollout_batch_size num_prompts generation_batch_size",
    "updates_per_batch": "num_iterations num_ppo_epochs ppo_epochs num_mini_batches mini_batches",
    "max_tokens_per_micro_batch": (
        "micro_batch_size mini_batch_size ppo_mini_batch_size ppo_micro_batch_size train_micro_batch_size "
        "max_token_len_per_gpu"
    ),
    "beta": "kl_coef init_kl_coef kl_coeff kl_loss_coef kl_beta kl_weight kl_penalty init_kl_coeff",
    "entropy_coef": "ent_coef entropy_coeff entropy_bonus entropy_weight",
    "clip_low": "clip_range cliprange clip_ratio clip_ratio_low clip_eps clip_param epsilon_low",
    "clip_high": "clip_ratio_high",
    "value_clip": "cliprange_value clip_range_vf",
    "dual_clip": "clip_ratio_c delta",
    "gae_lambda": "lam lambda gae_lam",
    "gamma_step": "gamma discount discount_factor",
    "advantages": "adv_estimator advantage_estimator algorithm algo",
    "loss_aggregation": "loss_agg_mode loss_type",
    "max_steps": "steps num_steps total_steps num_train_steps train_steps max_train_steps",
    "output_dir": "save_dir out_dir output logging_dir checkpoint_dir save_path",
    "resume_from_checkpoint": "resume resume_from resume_path load_checkpoint",
    "save_steps": "save_freq save_interval checkpointing_steps",
    "eval_steps": "eval_freq eval_interval test_freq",
    "logging_steps": "log_interval log_freq log_every logging_freq",
    "save_trajectories_steps": "log_completions log_rollouts num_completions_to_print",
    "run_name": "experiment_name exp_name wandb_name wandb_run_name",
    "seed": "random_seed data_seed manual_seed",
    "env": "env_name env_id environment environment_name environment_factory task_name",
    "env_kwargs": "env_config env_args environment_kwargs",
    "env_workers": "num_workers num_envs n_envs num_env_workers",
    "max_turns": "max_episode_steps max_tool_calling_iterations max_interactions",
    "tasks": "dataset_name dataset dataset_path train_file train_files train_data data_path",
    "collective_timeout_s": "ddp_timeout nccl_timeout",
    "halve_on_oom": "auto_find_batch_size",
}
"""Setting of ours -> names that other tools give it."""

_PRECISION = (
    "Precision belongs to the launcher: `accelerate launch --mixed_precision bf16 ...`, or a file as "
    f"{launcher_file('single_gpu')}; weights stay in fp32."
)
_TOKENS = (
    "Micro-batches are filled by tokens: `--max_tokens_per_micro_batch` bounds memory, and `--tasks_per_step` times "
    "`--group_size` trials make a step, whatever the number of processes."
)
_SHARDING = f"Sharding belongs to the launcher: `accelerate launch --config_file {launcher_file('zero3')} ...`."
_QUANTISED = (
    "Weights are not quantised in training: `--use_peft`, `--dtype bfloat16` and `--gradient_checkpointing` together "
    "take the least memory."
)
_HUB = (
    "Nothing is uploaded by a run: `hf upload NAME FOLDER` puts the finished folder, with its model card, on the hub."
)
_SAMPLER = (
    "Sampling runs inside the training processes and needs no server; "
    "`--max_tokens_per_generate_batch` bounds its memory."
)
_EPOCHS = "Tasks are drawn anew in each step, so training is counted in steps: set `--max_steps`."
_EVALUATION = (
    "Evaluation is set in steps: `--eval_steps 50`; `--eval_steps 0` evaluates only before and after training."
)
_TRACKER = (
    "Metrics go to TensorBoard's files and `metrics.jsonl` in the run folder, which other trackers can import; "
    "`--report_to none` leaves out the former."
)
_REWARD = "Rewards come from the environment's `step`: write an `Environment` and name it by `--env my_module:MyEnv`."
_REFERENCE = "The reference is the policy that starts the run: `--beta 0.01` turns the KL to it on."
_TOKENIZER = "The tokenizer and its chat template come from the folder of `--model_name_or_path`."
_DEVICES = (
    "Processes and devices belong to the launcher: `accelerate launch --num_processes 4 ...`, or with "
    "`accelerate launch --cpu ...` on CPUs."
)
_ALL = "It has no counterpart here and can be left out."

_SAVING = "Checkpoints are set in steps: `--save_steps 50`; 0 saves only at the end."
_LOGGING = "The log is set in steps: `--logging_steps 1`."
_WARMUP = "Warm-up is a number of steps: set `--warmup_steps`."
_OPTIMIZER = "The optimizer is AdamW: `--learning_rate`, `--weight_decay`, `--adam_beta1`, `--adam_beta2` set it."
_SCALING = "Advantages are scaled by `--norm mean_std` (by group) or `--scale_advantages batch_std`."
_REVISION = (
    "Models are read from the hub's default branch: download another with `hf download NAME --revision X --local-dir "
    "FOLDER` and give the folder as `--model_name_or_path`."
)
_OVERWRITE = (
    "An existing run is never overwritten: choose another `--output_dir`, or go on by `--resume_from_checkpoint "
    "latest`."
)
_BEST = "The validation metric is always one where higher is better: leave it out."

_ADVICE = {
    _PRECISION: "bf16 fp16 tf32 mixed_precision half_precision_backend bf16_full_eval fp16_full_eval",
    _TOKENS: (
        "per_device_train_batch_size per_device_batch_size per_gpu_train_batch_size gradient_accumulation_steps "
        "grad_accum accumulate_grad_batches steps_per_generation group_by_length packing max_seq_length max_seq_len "
        "max_length padding_free per_device_eval_batch_size eval_batch_size"
    ),
    _SHARDING: "deepspeed fsdp fsdp_config zero_stage use_fsdp parallelism_config ds3_gather_for_generation",
    _QUANTISED: "load_in_4bit load_in_8bit use_4bit use_8bit quantization_config bits use_bnb_nested_quant",
    _HUB: "push_to_hub save_to_hub",
    _SAMPLER: "use_vllm use_transformers_paged tensor_parallel_size gpu_memory_utilization cache_implementation",
    _EPOCHS: "num_train_epochs num_epochs epochs max_epochs total_epochs total_episodes max_train_samples",
    _EVALUATION: "eval_strategy evaluation_strategy do_eval do_train do_predict eval_on_start eval_dataset",
    _SAVING: "save_strategy save_only_model",
    _LOGGING: "logging_strategy logging_first_step",
    _TRACKER: "wandb use_wandb tracker log_with tracker_project_name project project_name trackio_space_id",
    _REWARD: "reward_funcs reward_model reward_model_path reward_fn reward_weights reward_function",
    _REFERENCE: "ref_model sync_ref_model reference_model ref_model_mixup_alpha ref_model_sync_steps use_kl_loss",
    _TOKENIZER: "tokenizer tokenizer_name tokenizer_name_or_path chat_template chat_template_path",
    _DEVICES: (
        "num_gpus gpus n_gpus n_gpus_per_node nproc_per_node num_processes nnodes num_machines device use_cpu no_cuda "
        "cpu cuda local_rank world_size"
    ),
    _WARMUP: "warmup_ratio lr_warmup_ratio",
    _OPTIMIZER: "optim optimizer optim_args adam_epsilon adafactor use_8bit_adam",
    _SCALING: "scale_rewards whiten_rewards whiten_advantages normalize_advantage norm_adv_by_std_in_grpo",
    _REVISION: "revision model_revision",
    _OVERWRITE: "overwrite_output_dir overwrite",
    _BEST: "greater_is_better",
    _ALL: (
        "remove_unused_columns use_liger_kernel use_liger_loss torch_compile save_safetensors disable_tqdm log_level "
        "neftune_noise_alpha label_smoothing_factor gradient_checkpointing_kwargs model_init_kwargs low_cpu_mem_usage "
        "mask_truncated_completions importance_sampling_level use_unsloth shuffle_dataset dataloader_drop_last "
        "ignore_data_skip full_determinism vf_coef"
    ),
}
"""Sentence -> the names that it answers."""

_FAMILIES = {
    "vllm_": _SAMPLER,
    "sglang_": _SAMPLER,
    "hub_": _HUB,
    "push_to_hub_": _HUB,
    "bnb_": _QUANTISED,
    "fsdp_": _SHARDING,
    "deepspeed_": _SHARDING,
    "zero3_": _SHARDING,
    "ddp_": _DEVICES,
    "wandb_": _TRACKER,
    "mlflow_": _TRACKER,
    "dataset_": "Tasks come from the environment, or from a list of seeds: `--tasks FILE.jsonl`.",
    "dataloader_": _ALL,
    "torch_compile_": _ALL,
    "optim_": _OPTIMIZER,
}
"""Beginning of a name -> the sentence that answers all of that family."""

_TRACKERS = "all wandb mlflow comet_ml trackio swanlab neptune clearml aim dvclive codecarbon azure_ml flyte"
"""Values of `report_to` elsewhere."""

_OURS = {name: ours for ours, names in _RENAMED.items() for name in names.split()}
_SENTENCES = {name: sentence for sentence, names in _ADVICE.items() for name in names.split()}


def foreign_hint(word: str, known: Collection[str], *, flags: bool = False) -> str:
    """Return a sentence, led by a blank, on what to use for a word of another tool; empty for words of none.

    Args:
        word: as it was given, with or without its dashes.
        known: names that can be set here.
        flags: whether settings are written as flags.

    >>> foreign_hint("--lr", ["learning_rate"], flags=True)
    ' Use `--learning_rate`.'
    """
    name = word.lstrip("-").replace("-", "_").lower()
    ours, positive = _OURS.get(name), name.removeprefix("no_")
    if ours in known:
        sentence = f"Use `--{ours}`."
    elif positive != name and positive in known:
        sentence = f"Write `--{positive} false`."
    else:
        family = next((text for start, text in _FAMILIES.items() if name.startswith(start)), None)
        sentence = _SENTENCES.get(name, family)
    if sentence is None:
        return ""
    if not flags:
        sentence = re.sub(r"`--(\w+) ([^`]+)`", r"`\1: \2`", sentence).replace("`--", "`")
    return f" {sentence}"


def tracker_hint(word: str) -> str:
    """Return a sentence, led by a blank, for a tracker of other tools; empty for other words."""
    return f" {_TRACKER}" if word.lower().replace("-", "_") in _TRACKERS.split() else ""
