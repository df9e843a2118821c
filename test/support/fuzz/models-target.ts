/** Folders of models, with one file of an input. The first byte of an input selects the file. */

import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  type FolderFiles,
  type FolderPart,
  makeModelFolders,
  openSmallDevice,
  useModelFolder,
  writeFolder,
} from "../hostile/model-folder.js";
import { changedJson, changeKinds, hostileValues } from "../hostile/mutate-json.js";
import type { SeededRandom } from "./mutate.js";
import type { FuzzTarget } from "./targets.js";

const { whole, sharded } = makeModelFolders();
const shards = [...sharded.keys()].filter((path) => path.endsWith(".safetensors"));

interface Replaced {
  readonly files: FolderFiles;
  readonly path: string;
  readonly part: FolderPart;
}

const replaced: readonly Replaced[] = [
  { files: whole, path: "config.json", part: "model" },
  { files: whole, path: "model.safetensors", part: "model" },
  { files: sharded, path: "model.safetensors.index.json", part: "model" },
  { files: sharded, path: shards[0] ?? "", part: "model" },
  { files: whole, path: "adapter/adapter_config.json", part: "adapter" },
  { files: whole, path: "adapter/adapter_model.safetensors", part: "adapter" },
  { files: whole, path: "tokenizer.json", part: "tokenizer" },
  { files: whole, path: "tokenizer_config.json", part: "tokenizer" },
  { files: whole, path: "special_tokens_map.json", part: "tokenizer" },
  { files: whole, path: "chat_template.jinja", part: "tokenizer" },
  { files: whole, path: "generation_config.json", part: "generation" },
];

/** An input, with this content of a file. */
function inputOf(path: string, content: string | Uint8Array): Uint8Array {
  const index = replaced.findIndex((one) => one.path === path);
  return Buffer.concat([Uint8Array.of(index), Buffer.from(content)]);
}

const double = (step: string): string => `{% for i in range(60) %}{% set n.x = ${step} %}{% endfor %}`;

/** Programs that would fill the memory. */
const templates: readonly string[] = [
  `{% set n = namespace(x='${"a".repeat(1000)}') %}${double("[n.x, n.x, n.x, n.x]")}{{ n.x | tojson(indent=1000) }}`,
  `{% set n = namespace(x='ab') %}${double("n.x + n.x")}{{ n.x }}`,
  "{% set l = range(9999) | list %}{{ l | join('x' | indent(40000, true)) | length }}",
  "{{ range(9999) | list | tojson(indent=50000) | length }}",
];

const nested = (levels: number): string => `${"[".repeat(levels)}${"]".repeat(levels)}`;

export const modelsTarget: FuzzTarget = {
  seeds: () => [
    ...replaced.map(({ files, path }) => inputOf(path, files.get(path) ?? "")),
    ...templates.map((template) => inputOf("chat_template.jinja", template)),
    inputOf("config.json", `{"model_type": "llama", "task_specific_params": ${nested(200_000)}}`),
    inputOf("tokenizer.json", `{"model": {"vocab": {${names(2_000_000)}}}}`),
    inputOf("model.safetensors.index.json", `{"metadata": {${names(1_500_000)}}, "weight_map": {}}`),
  ],
  draw(random) {
    const { files, path } = random.pick(replaced.filter((one) => one.path.endsWith(".json")));
    const content: unknown = JSON.parse(new TextDecoder().decode(files.get(path)));
    return inputOf(path, drawChange(content, random));
  },
  open(folder) {
    let count = 0;
    let device = openSmallDevice();
    return (input) => {
      // Models are never released.
      if (++count % 200 === 0) {
        device.close();
        device = openSmallDevice();
      }
      const { files, path, part } = replaced[(input[0] ?? 0) % replaced.length] as Replaced;
      const model = join(folder, "model");
      rmSync(model, { recursive: true, force: true });
      writeFolder(model, files);
      writeFileSync(join(model, path), input.subarray(1));
      const [error] = useModelFolder(model, device, [part]).errors;
      if (error) throw error;
    };
  },
};

function drawChange(content: unknown, random: SeededRandom): string {
  const change = {
    place: random.below(1_000_000),
    kind: random.pick(changeKinds),
    value: random.below(hostileValues.length),
  };
  return changedJson(content, change);
}

function names(count: number): string {
  return Array.from({ length: count }, (_, at) => `"${at.toString(36)}":${at}`).join();
}
