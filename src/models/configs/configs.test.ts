/** Configs are untrusted: unknown fields, values that Holdfast lacks and hostile sizes are rejected by name, before anything is made. */

import assert from "node:assert/strict";
import test from "node:test";
import { rejects } from "../../../test/support/rejects.js";
import { modelFromConfig } from "../model-from-config.js";

const gpt2 = { model_type: "gpt2", vocab_size: 20, n_positions: 8, n_embd: 8, n_layer: 1, n_head: 2 };
const llama = {
  ...{ model_type: "llama", vocab_size: 20, hidden_size: 8, intermediate_size: 8 },
  ...{ num_hidden_layers: 1, num_attention_heads: 2 },
};

/** Configs with one fault, and the message. */
const faults: readonly (readonly [config: object, message: RegExp])[] = [
  [{ ...llama, mup_scale: 2 }, /llama: unknown field "mup_scale".*allowUnknown: \["mup_scale"\]/],
  [{ ...gpt2, a: 1, b: 2 }, /unknown fields "a", "b"/],
  [{ ...llama, quantization_config: {} }, /unknown field "quantization_config"/],
  [
    { ...llama, rope_scaling: { rope_type: "longrope" } },
    /"rope_scaling.rope_type" is "longrope"; it must be one of "default"/,
  ],
  [{ ...llama, rope_scaling: { type: "linear", factor: 2, beta: 1 } }, /unknown field "rope_scaling.beta"/],
  [{ ...llama, rope_scaling: { rope_type: "llama3", factor: 2 } }, /needs low_freq_factor/],
  [{ ...llama, rope_scaling: [] }, /"rope_scaling" is a list; it must be an object/],
  [{ ...llama, hidden_act: "xielu" }, /"hidden_act" is "xielu"; it must be one of "gelu"/],
  [{ ...llama, is_encoder_decoder: true }, /"is_encoder_decoder" is true; it must be false/],
  [{ ...llama, pruned_heads: { 0: [1] } }, /"pruned_heads" is an object; it must be empty/],
  [{ ...llama, num_attention_heads: 3 }, /hidden_size is 8, which is no multiple of num_attention_heads, 3/],
  [
    { ...llama, num_key_value_heads: 3 },
    /num_attention_heads is 2, which is no multiple of num_key_value_heads, 3/,
  ],
  [{ ...llama, head_dim: 5 }, /the width of a head is 5, which is no multiple of 2/],
  [
    { ...llama, num_hidden_layers: 1e9 },
    /"num_hidden_layers" is 1000000000; it must be a whole number from 1 to 1024/,
  ],
  [{ ...llama, vocab_size: 2 ** 40 }, /"vocab_size" is 1099511627776/],
  [{ ...llama, vocab_size: "20" }, /"vocab_size" is "20"/],
  [{ ...llama, hidden_size: 0.5 }, /"hidden_size" is 0.5/],
  [{ ...llama, rms_norm_eps: Number.NaN }, /"rms_norm_eps" is NaN; it must be a number above 0/],
  [{ ...gpt2, resid_pdrop: 1 }, /"resid_pdrop" is 1; it must be a number from 0 to below 1/],
  [{ ...gpt2, n_embd: 9 }, /n_embd is 9, which is no multiple of n_head, 2/],
  [
    {
      ...llama,
      model_type: "qwen3",
      num_key_value_heads: 2,
      layer_types: ["sliding_attention", "full_attention"],
    },
    /layer_types must have one of/,
  ],
  [
    { ...llama, model_type: "qwen2", num_key_value_heads: 2, attention_bias: false },
    /"attention_bias" is false; it must be true/,
  ],
];

test("a config with a fault is rejected by the name of its field", () => {
  for (const [config, message] of faults)
    rejects("BAD_ARGUMENT", () => modelFromConfig({ ...config }), message);
});

test("a config of another model, or none, is rejected", () => {
  rejects(
    "UNSUPPORTED",
    () => modelFromConfig({ model_type: "mamba" }),
    /model_type is "mamba"; Holdfast has gpt2, llama/,
  );
  rejects(
    "UNSUPPORTED",
    () => modelFromConfig(JSON.parse('{"__proto__": {"model_type": "gpt2"}}')),
    /model_type is missing/,
  );
  rejects("BAD_ARGUMENT", () => modelFromConfig("{}" as never), /JSON.parse/);
});

test("harmless and allowed fields change nothing", () => {
  const harmless = {
    _name_or_path: "x",
    torch_dtype: "bfloat16",
    bos_token_id: [1, 2],
    use_cache: false,
    rope_scaling: null,
  };
  const model = modelFromConfig({ ...llama, ...harmless, own: 1 }, { allowUnknown: ["own"] });
  assert.equal(model.parameterCount, modelFromConfig(llama).parameterCount);
});

test("a config with deep and large values of harmless fields costs nothing", () => {
  const deep = JSON.parse(`${"[".repeat(50_000)}${"]".repeat(50_000)}`);
  const model = modelFromConfig({ ...llama, task_specific_params: deep });
  assert.equal(model.parameterCount, modelFromConfig(llama).parameterCount);
});

test("rope_parameters of newer files mean what rope_theta and rope_scaling of older ones do", () => {
  const older = modelFromConfig({ ...llama, rope_theta: 500, rope_scaling: { type: "linear", factor: 4 } });
  const newer = modelFromConfig({
    ...llama,
    rope_parameters: { rope_type: "linear", rope_theta: 500, factor: 4 },
  });
  const frequenciesOf = (model: typeof older): ArrayLike<number> => model.buffers()[0]!.initialValues();
  assert.deepEqual(frequenciesOf(newer), frequenciesOf(older));
  assert.equal(frequenciesOf(newer)[0], 0.25);
});
