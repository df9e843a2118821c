/** Folders of models from strangers are rejected by an error that names the file and the field. */

import assert from "node:assert/strict";
import { cpSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import type { ErrorCode } from "holdfast";
import {
  data,
  header,
  root,
  shardOf,
  textOf,
  weightsFile,
  withFields,
  withFile,
  withHeader,
  withIndex,
} from "./support/hostile/folders.js";
import { type FolderPart, openSmallDevice, useModelFolder } from "./support/hostile/model-folder.js";

const device = openSmallDevice();
after(() => device.close());

type Case = readonly [folder: string, message: RegExp];

/** Each folder is rejected, with this code and a message of a readable length. */
function rejectsEach(part: FolderPart, code: ErrorCode, cases: readonly Case[]): void {
  for (const [folder, message] of cases) {
    const [error, ...others] = useModelFolder(folder, device, [part]).errors;
    assert.ok(error, `not rejected: ${message}`);
    assert.equal(error.code, code, error.message);
    assert.match(error.message, message);
    assert.deepEqual(others, []);
    assert.ok(error.message.length < 1500, `${error.message.length} characters`);
  }
}

const nested = (levels: number): string => `${"[".repeat(levels)}${"]".repeat(levels)}`;
const many = <Item>(count: number, make: (at: number) => readonly [string, Item]) =>
  Object.fromEntries(Array.from({ length: count }, (_, at) => make(at)));

const config = (fields: object): string => withFields("config.json", fields);
const configText = (from: string, to: string): string =>
  withFile("config.json", textOf("config.json").replace(from, to));

test("a config with absurd sizes, other types or too many values is rejected", () => {
  rejectsEach("model", "BAD_ARGUMENT", [
    [
      config({ hidden_size: 1e12 }),
      /config.json: .*"hidden_size" is 1000000000000; it must be a whole number/,
    ],
    [config({ num_hidden_layers: 1e9 }), /config.json: .*"num_hidden_layers" is 1000000000/],
    [config({ intermediate_size: -1 }), /config.json: .*"intermediate_size" is -1/],
    [config({ vocab_size: "259" }), /config.json: .*"vocab_size" is "259"/],
    [config({ vocab_size: [259] }), /config.json: .*"vocab_size" is a list/],
    [
      config({ num_attention_heads: 3 }),
      /config.json: .*hidden_size is 8, which is no multiple of num_attention/,
    ],
    [config({ rope_scaling: [1] }), /config.json: .*"rope_scaling" is a list/],
    [config({ "\u001b[31m": 1 }), /config.json: .*unknown field "\\u001b\[31m"/],
    [configText('"hidden_size": 8', '"hidden_size": 1e999'), /config.json: .*"hidden_size" is Infinity/],
  ]);
  rejectsEach("model", "BAD_STATE", [
    [config({ hidden_size: 2 ** 24 }), /is \[259, 8\], and the config's is \[259, 16777216\]/],
    [config({ head_dim: 2 ** 24 }), /is \[8, 8\], and the config's is \[67108864, 8\]/],
    [config({ num_hidden_layers: 1024 }), /it lacks "model.layers.2.*and \d+ more tensors/],
  ]);
  rejectsEach("model", "UNSUPPORTED", [
    [config({ model_type: "x".repeat(100_000) }), /config.json: model_type is "x+…"; Holdfast has gpt2/],
  ]);
  rejectsEach("model", "BAD_FILE", [
    [configText('"hidden_size": 8', '"hidden_size": NaN'), /config.json is not JSON/],
    [withFile("config.json", `{"a": ${nested(100_000)}}`), /config.json has 100001 arrays and objects/],
    [withFile("config.json", `{"a": ${nested(1000)}}`), /config.json has 1001 levels; the maximum is 32/],
    [withFile("config.json", "[]"), /config.json: the file must be an object, but is a list/],
    [withFile("config.json", new Uint8Array([0xff, 0xfe])), /config.json is not UTF-8/],
    [withFile("config.json", `"${"a".repeat(2 ** 20)}"`), /config.json has 1 MiB; the maximum is 1 MiB/],
  ]);
});

const tensors = header as Readonly<
  Record<string, { readonly shape: number[]; readonly data_offsets: readonly [number, number] }>
>;
const [first = "", second = ""] = Object.keys(tensors).filter((name) => name !== "__metadata__");
const [begin = 0, end = 0] = tensors[first]?.data_offsets ?? [];
/** Other fields of the first tensor. */
const withTensor = (fields: object): string =>
  withHeader({ ...tensors, [first]: { ...tensors[first], ...fields } });

test("weights with a damaged header, or tensors that overlap or do not fit, are rejected", () => {
  const twice = JSON.stringify(tensors).replace(
    "{",
    `{${JSON.stringify(first)}:${JSON.stringify(tensors[first])},`,
  );
  const one = JSON.stringify({ x: { dtype: "F32", shape: [2], data_offsets: [0, 8] } });
  const overlapping = { ...tensors, [second]: { ...tensors[second], data_offsets: [begin, end] } };
  rejectsEach("model", "BAD_FILE", [
    [
      withHeader(tensors, 2n ** 40n),
      /model.safetensors can't be read: The file states a header of 1099511627776/,
    ],
    [
      withFile(weightsFile, new Uint8Array(16).fill(255)),
      /a header of 18446744073709551615 bytes, but 8 bytes/,
    ],
    [withFile(weightsFile, ""), /model.safetensors can't be read: The file has 0 bytes/],
    [withHeader("{hello}"), /In the header, byte 1, .*found "hello/],
    [withHeader(twice), new RegExp(`found a second "${first}"`)],
    [withHeader(`{"a": ${nested(100_000)}}`), /in tensor "a": found "\[/],
    [withHeader(one), /The tensors end at 8, but the file has \d+ bytes/],
    [
      withTensor({ shape: [2 ** 40], data_offsets: [begin, begin + 2 ** 42] }),
      /but the file has \d+ bytes of data/,
    ],
    [withTensor({ data_offsets: [-8, end] }), /found -8, expected a whole number/],
    [withTensor({ data_offsets: [end, begin] }), /the end is before the start/],
    [
      withTensor({ data_offsets: [begin + 4, end + 4] }),
      /another tensor reaches to|nothing covers the bytes/,
    ],
    [withHeader(overlapping), /needs \d+ bytes, but its data_offsets|another tensor reaches to/],
    [withHeader({ ...tensors, [first]: undefined }), /nothing covers the bytes/],
    [withTensor({ dtype: "F64" }), /"F64" \[.*\], needs \d+ bytes, but its data_offsets are/],
    [withTensor({ shape: [2 ** 26, 2 ** 26, 2 ** 26] }), /more bytes than can be counted/],
    [withFile(weightsFile, Uint8Array.from([...new Uint8Array(8), ...data])), /The header is empty/],
  ]);
  rejectsEach("model", "BAD_DTYPE", [
    [withTensor({ dtype: "Q4_K" }), /has the dtype "Q4_K"; weights are F64, F32/],
    [withTensor({ dtype: "I32" }), /has the dtype "I32"/],
  ]);
  const extra = { ...tensors, "x.weight": { dtype: "F32", shape: [0], data_offsets: [0, 0] } };
  rejectsEach("model", "BAD_STATE", [
    [
      withTensor({ shape: tensors[first]?.shape.toReversed() }),
      /is \[8, 259\], and the config's is \[259, 8\]/,
    ],
    [withHeader(extra), /the model has no "x.weight"/],
  ]);
});

test("an index that leads elsewhere, or does not agree with its shards, is rejected", () => {
  const [name = ""] = Object.keys(shardOf);
  const shards = [...new Set(Object.values(shardOf))].sort();
  const leadTo = (shard: string): string => withIndex({ ...shardOf, [name]: shard });
  const copied = withIndex(shardOf);
  cpSync(join(copied, shards[0] ?? ""), join(copied, shards[1] ?? ""));
  const other = shards.find((shard) => shard !== shardOf[name]) ?? "";
  rejectsEach("model", "BAD_FILE", [
    [
      leadTo("/etc/passwd"),
      /index.json: tensor ".*" is in the shard "\/etc\/passwd"; a shard is a file of the same/,
    ],
    [leadTo("../whole/model.safetensors"), /index.json: tensor ".*" is in the shard "..\/whole/],
    [leadTo("a/../../x.safetensors"), /a shard is a file of the same folder/],
    [leadTo("x\u0000.safetensors"), /"x\\u0000.safetensors"/],
    [leadTo("none.safetensors"), /none.safetensors can't be read: ENOENT/],
    [leadTo(other), /index.json: tensor ".*" is (not in|in) "model-0/],
    [copied, /tensor ".*" is also in model-0000/],
    [withIndex({ ...shardOf, extra: other }), /index.json: tensor "extra" is not in/],
    [withIndex(many(10_001, (at) => [`a${at}`, `s${at}.safetensors`])), /index.json: it names 10001 shards/],
    [withIndex(many(100_001, (at) => [`a${at}`, other])), /index.json has \d+ values; the maximum is 100000/],
    [withIndex(`{"metadata": ${nested(100)}, "weight_map": {}}`), /index.json has 101 levels/],
  ]);
});

const adapterFile = "adapter/adapter_config.json";
const lora = (fields: object): string => withFields(adapterFile, fields);

test("an adapter with another rank, other targets or patterns is rejected", () => {
  rejectsEach("adapter", "BAD_ARGUMENT", [
    [lora({ r: 2 ** 40 }), /adapter_config.json: .*"r" is 1099511627776/],
    [lora({ rank_pattern: { "(a|aa)+$": 2 } }), /adapter_config.json: .*rank_pattern maps/],
    [lora({ modules_to_save: ["../x"] }), /adapter_config.json: .*no module is called "..\/x"/],
  ]);
  rejectsEach("adapter", "BAD_STATE", [
    [lora({ r: 3 }), /by the model and adapter_config.json it is \[3, 8\]/],
    [lora({ target_modules: ["nothing"] }), /target_modules of adapter_config.json does not name this layer/],
  ]);
  rejectsEach("adapter", "BAD_FILE", [
    [withFile(adapterFile, `{"auto_mapping": ${nested(10_000)}}`), /adapter_config.json has 10001 levels/],
  ]);
  const elsewhere = lora({ base_model_name_or_path: "../../etc/passwd", target_modules: "(a|aa)+$" });
  assert.deepEqual(useModelFolder(elsewhere, device, ["adapter"]).errors, []);
});

test("absurd settings of generation are rejected", () => {
  const generation = (text: string): string => withFile("generation_config.json", text);
  rejectsEach("generation", "BAD_FILE", [
    [generation("[]"), /generation_config.json: the file must be an object/],
    [
      generation('{"temperature": -1}'),
      /generation_config.json: temperature must be .* 0 to 1000, but is -1/,
    ],
    [generation('{"top_p": 1e999}'), /generation_config.json: top_p must be a number, but is Infinity/],
    [
      generation('{"max_new_tokens": 1e300}'),
      /generation_config.json: max_new_tokens must be a whole number/,
    ],
    [
      generation(`{"eos_token_id": [${new Array(2000).fill(1)}]}`),
      /eos_token_id must be a list of at most 1000/,
    ],
  ]);
});

test("hostile files of a tokenizer are rejected", () => {
  const unknownMerge = textOf("tokenizer.json").replace('"merges": []', '"merges": ["q zz"]');
  const template = (text: string): string => withFile("chat_template.jinja", text);
  assert.notEqual(unknownMerge, textOf("tokenizer.json"));
  rejectsEach("tokenizer", "BAD_FILE", [
    [withFile("tokenizer.json", unknownMerge), /tokenizer.json: model.merges\[0\] must be two tokens/],
    [withFile("tokenizer.json", `{"model": ${nested(100_000)}}`), /tokenizer.json has 100001 levels/],
    [withFile("tokenizer_config.json", "[]"), /tokenizer_config.json: the file must be an object/],
    [
      withFile("tokenizer_config.json", '{"chat_template": 7}'),
      /tokenizer_config.json: chat_template must be a list/,
    ],
    [
      withFile("special_tokens_map.json", "7"),
      /special_tokens_map.json: the file must be an object, but is 7/,
    ],
    [
      template("{% for i in range(1000000000000) %}a{% endfor %}"),
      /of chat_template.jinja was stopped: .*range/,
    ],
    [template("{{ range(9999) | join('x' | indent(100000, true)) }}"), /of chat_template.jinja was stopped/],
    [template("a".repeat(300_000)), /chat_template.jinja has 300000 bytes; the maximum is 262144/],
  ]);
});

test("devices and folders are not read, and symbolic links are followed, as caches of models have them", () => {
  for (const [path, part] of [
    ["config.json", "model"],
    [weightsFile, "model"],
    ["tokenizer.json", "tokenizer"],
    ["generation_config.json", "generation"],
  ] as const) {
    for (const target of ["/dev/zero", "."]) {
      const folder = withFile(path, "");
      rmSync(join(folder, path));
      symlinkSync(target, join(folder, path));
      rejectsEach(part, "BAD_FILE", [[folder, /is a folder, a pipe or a device/]]);
    }
  }
  const folder = withFile("other.json", "");
  cpSync(join(folder, weightsFile), join(root, "blob"));
  rmSync(join(folder, weightsFile));
  symlinkSync(join(root, "blob"), join(folder, weightsFile));
  assert.deepEqual(useModelFolder(folder, device, ["model"]).errors, []);
});
