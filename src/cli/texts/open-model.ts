/** The model that `holdfast generate` and `holdfast serve` use: its folder, its device, and the options of both commands. */

import { basename, resolve } from "node:path";
import { type Command, Option } from "commander";
import { type GenerationConfig, Generator, loadGenerationConfig } from "../../generate/index.js";
import { loadLora, loadPretrained } from "../../models/index.js";
import { type Device, device as openDevice } from "../../tensor/index.js";
import { loadTokenizer, type Tokenizer } from "../../text/index.js";
import { commandDefaults } from "../command-defaults.js";
import { wholeNumber } from "../options.js";

export interface ModelOptions {
  readonly model: string;
  readonly adapter?: string;
  readonly device: "auto" | "cpu" | "cuda";
  readonly dtype?: "f32" | "f16" | "bf16";
  readonly maxLength?: number;
}

export interface OpenedModel {
  readonly device: Device;
  /** The folder's name. */
  readonly name: string;
  readonly tokenizer: Tokenizer;
  readonly generator: Generator;
  readonly config: GenerationConfig;
  close(): void;
}

/** The maximum length of texts, if neither the model nor the user has a smaller one. A cache of more takes much memory. */
const usualMaxLength = 4096;

export function withModelOptions(command: Command): Command {
  return command
    .requiredOption("--model <folder>", "the model's folder, as Hugging Face lays it out (required)")
    .option("--adapter <folder>", "the folder of a LoRA adapter of the model, as PEFT lays it out")
    .addOption(
      new Option("--device <device>", "the device to run on; auto uses a GPU if there is one")
        .choices(["auto", "cpu", "cuda"])
        .default("auto"),
    )
    .addOption(
      new Option("--dtype <dtype>", "the dtype of the weights and the cache (default: as stored)").choices([
        "f32",
        "f16",
        "bf16",
      ]),
    )
    .addOption(
      new Option(
        "--max-length <tokens>",
        `max. tokens of a prompt and its text (default: the model's, up to ${usualMaxLength})`,
      ).argParser(wholeNumber(2)),
    );
}

/** Opens the device and loads the folder. Warns about settings of the folder that have no effect. */
export async function openModel(
  options: ModelOptions,
  slots: number,
  print: (text: string) => void,
): Promise<OpenedModel> {
  const { model: folder, adapter, dtype, maxLength } = options;
  const config = loadGenerationConfig(folder);
  const tokenizer = loadTokenizer(folder);
  const device = await openDevice(options.device, { ...commandDefaults(), print });
  try {
    const model = loadPretrained(folder, { device, frozen: true, ...(dtype && { dtype }) });
    if (adapter !== undefined) loadLora(model, adapter);
    const longest = "maxLength" in model && typeof model.maxLength === "number" ? model.maxLength : 2;
    const generator = new Generator(model, {
      ...{ slots, tokenizer, maxLength: maxLength ?? Math.min(longest, usualMaxLength) },
    });
    if (config.ignored.length > 0)
      print(`holdfast: generation_config.json: not supported, no effect: ${config.ignored.join(", ")}\n`);
    return {
      ...{ device, name: basename(resolve(folder)), tokenizer, generator, config },
      close() {
        generator.close();
        device.close();
      },
    };
  } catch (error) {
    device.close();
    throw error;
  }
}
