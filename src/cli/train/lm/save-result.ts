/** Writes the result of `holdfast train lm` into the run's folder: a model's folder, or an adapter and on request the merged model. */

import { join } from "node:path";
import { isThere, withFileError, writeAtomically } from "../../../data/index.js";
import { readRegularFile } from "../../../files/index.js";
import {
  type LanguageModel,
  loadLora,
  loadPretrained,
  mergeLora,
  type SavePretrainedOptions,
  saveLora,
  savePretrained,
} from "../../../models/index.js";
import type { Device } from "../../../tensor/index.js";
import { saveTokenizer, type Tokenizer } from "../../../text/index.js";
import { MiB } from "../../../units/index.js";
import { type LmOptions, type WeightDtype, weightDtypes } from "./options.js";

/** The folders of a result. */
export interface SavedFolders {
  readonly model?: string;
  readonly adapter?: string;
}

const generationConfig = "generation_config.json";

export function saveResult(run: string, { device, model, tokenizer, options }: ResultToSave): SavedFolders {
  const folders = { model: join(run, "model"), adapter: join(run, "adapter") };
  const base = options.model;
  if (!options.lora || base === undefined) {
    saveModel(model, folders.model, { tokenizer, base, dtype: options.saveDtype });
    return { model: folders.model };
  }
  saveLora(model, folders.adapter);
  saveTokenizer(tokenizer, folders.adapter);
  if (!options.merge) return { adapter: folders.adapter };
  // Merged in the dtype of the folder, which may have more digits than the frozen weights of the training.
  const merged = mergeLora(loadLora(loadPretrained(base, { device, frozen: true }), folders.adapter));
  saveModel(merged as LanguageModel, folders.model, { tokenizer, base, dtype: options.saveDtype });
  return folders;
}

interface ResultToSave {
  readonly device: Device;
  readonly model: LanguageModel;
  readonly tokenizer: Tokenizer;
  readonly options: LmOptions;
}

interface SaveModelOptions {
  readonly tokenizer: Tokenizer;
  readonly base: string | undefined;
  readonly dtype: WeightDtype | undefined;
}

/** The model's folder, with its tokenizer, and the settings of generation that the base has. */
function saveModel(model: LanguageModel, folder: string, { tokenizer, base, dtype }: SaveModelOptions): void {
  savePretrained(model, folder, dtypeOption(dtype ?? storedDtype(model)));
  saveTokenizer(tokenizer, folder);
  const source = base === undefined ? undefined : join(base, generationConfig);
  if (source === undefined || !isThere(source)) return;
  const bytes = withFileError(`${source} can't be read`, source, () => readRegularFile(source, MiB));
  writeAtomically(join(folder, generationConfig), [bytes]);
}

function dtypeOption(dtype: WeightDtype | undefined): SavePretrainedOptions {
  return dtype === undefined ? {} : { dtype };
}

/** The dtype that the config of the base names; undefined for that of the parameters. */
function storedDtype({ config }: LanguageModel): WeightDtype | undefined {
  const named = config["torch_dtype"] ?? config["dtype"];
  const [f32, f16, bf16] = weightDtypes;
  return new Map<unknown, WeightDtype>([
    ["float32", f32],
    ["float16", f16],
    ["bfloat16", bf16],
  ]).get(named);
}
