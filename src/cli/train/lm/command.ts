/** `holdfast train lm`: its options. */

import { type Command, Option } from "commander";
import { defaultSettings } from "../../../lm/index.js";
import { realNumber, wholeNumber } from "../../options.js";
import { addRunOptions } from "../run-options.js";
import { type LmOptions, learningRates, loraDefaults, usualHeldOut, weightDtypes } from "./options.js";
import { trainLm } from "./train-lm.js";

const { batch, accumulate, epochs, schedule, warmup, weightDecay, clip, seed } = defaultSettings;

const above0 = realNumber((value) => value > 0 && Number.isFinite(value), "a number above 0");
const from0 = realNumber((value) => value >= 0 && Number.isFinite(value), "a number, 0 or more");
const share = realNumber((value) => value >= 0 && value < 1, "a number from 0 to below 1");

const whole = (flags: string, description: string, min = 1): Option =>
  new Option(flags, description).argParser(wholeNumber(min));

function collect(text: string, before: readonly string[] = []): readonly string[] {
  return [...before, text];
}

/** Adds the command. Its exit code is passed to `end`. */
export function addTrainLm(train: Command, end: (code: number) => void): void {
  const command = train
    .command("lm")
    .description("fine-tune a language model on texts, or train a new one: all weights or LoRA adapters")
    .optionsGroup("Model:")
    .option("--model <folder>", "the folder of a model to fine-tune, as Hugging Face lays it out")
    .option("--config <file>", "instead of --model: a config.json, to train a new model from random weights")
    .option(
      "--tokenizer <folder>",
      'the folder of a tokenizer, or "bytes" (default: that of --model; bytes with --config)',
    )
    .optionsGroup("Data:")
    .requiredOption(
      "--data <files...>",
      "the texts to train on: .txt (one text), or .jsonl with text, prompt and completion, or messages in each line (required)",
    )
    .option("--eval-data <files...>", "texts to evaluate on (default: a share of --data)")
    .addOption(
      new Option(
        "--held-out <share>",
        `the share of --data to evaluate on; 0 for none (default: ${usualHeldOut} without --eval-data)`,
      ).argParser(share),
    )
    .addOption(whole("--length <tokens>", "tokens in a row (default: the model's maximum, up to 1024)", 2))
    .option("--no-packing", "put each text into a row of its own")
    .addOption(
      new Option(
        "--long-texts <way>",
        "what to do with texts of more tokens than a row (default: split texts, truncate prompts and chats)",
      ).choices(["split", "truncate", "drop"]),
    )
    .addOption(
      new Option("--loss-on <tokens>", "the tokens of prompts and chats that the model learns")
        .choices(["answers", "all"])
        .default("answers"),
    )
    .option("--template <name>", "the name of the chat template, if the tokenizer has several")
    .optionsGroup("Training:")
    .addOption(whole("--epochs <number>", `epochs (default: ${epochs}, or as many as --steps needs)`))
    .addOption(whole("--steps <number>", "end after so many steps"))
    .addOption(whole("--batch <rows>", "rows of a batch").default(batch))
    .addOption(whole("--accumulate <batches>", "batches of a step").default(accumulate))
    .addOption(
      new Option(
        "--lr <rate>",
        `the highest learning rate (default: ${learningRates.model}, ${learningRates.lora} with --lora, ${learningRates.config} with --config)`,
      ).argParser(above0),
    )
    .addOption(
      new Option("--schedule <name>", "how the learning rate falls after the warm-up")
        .choices(["cosine", "linear", "constant"])
        .default(schedule),
    )
    .addOption(
      new Option("--warmup <share>", "the share of the steps in which the learning rate rises")
        .argParser(share)
        .default(warmup),
    )
    .addOption(
      new Option("--weight-decay <number>", "of matrices and embeddings; biases and norms have none")
        .argParser(from0)
        .default(weightDecay),
    )
    .addOption(
      new Option("--clip <norm>", "max. norm of all gradients together").argParser(above0).default(clip),
    )
    .addOption(
      whole("--seed <number>", "the random seed; the same seed gives the same weights", 0).default(seed),
    )
    .addOption(whole("--eval-every <steps>", "steps between two evaluations (default: an epoch)"))
    .option("--checkpoint", "gradient checkpointing: compute the blocks again in backward, for less memory")
    .optionsGroup("LoRA:")
    .option("--lora", "train LoRA adapters; the weights of the model stay as they are")
    .addOption(whole("--lora-rank <number>", `the rank (default: ${loraDefaults.rank})`))
    .addOption(
      new Option("--lora-alpha <number>", "scales by alpha / rank (default: twice the rank)").argParser(
        above0,
      ),
    )
    .addOption(
      new Option(
        "--lora-dropout <share>",
        `the dropout probability before the adapters (default: ${loraDefaults.dropout})`,
      ).argParser(share),
    )
    .option(
      "--lora-targets <names...>",
      'layers with adapters, such as q_proj v_proj, or "all-linear" (default: PEFT\'s for the model type)',
    )
    .addOption(
      new Option("--base-dtype <dtype>", "the dtype of the frozen weights (default: bf16)").choices(
        weightDtypes,
      ),
    )
    .option("--merge", "also save a model with the adapters in its weights")
    .optionsGroup("Samples:")
    .addOption(
      new Option(
        "--sample <prompt>",
        "write a text for this prompt after each evaluation; several options give several",
      ).argParser(collect),
    )
    .option("--sample-chat", "the prompts are messages: write them as the chat template does")
    .addOption(whole("--sample-every <steps>", "steps between two samples (default: --eval-every)"))
    .addOption(whole("--sample-tokens <number>", "max. new tokens of a sample (default: 64)"))
    .addOption(
      new Option(
        "--sample-temperature <number>",
        "divides the logits; 0 selects the likeliest token (default: 0)",
      ).argParser(from0),
    );
  addRunOptions(command, "lm")
    .addOption(
      new Option(
        "--save-dtype <dtype>",
        "the dtype of the saved model (default: that of --model's config.json, or f32)",
      ).choices(weightDtypes),
    )
    .addHelpText("after", examples)
    .action(async (options: LmOptions) => end(await trainLm(options)));
}

const examples = `
Examples:
  holdfast train lm --model smollm --data notes.txt --sample "Dear diary"
  holdfast train lm --model qwen --data chats.jsonl --lora --out runs/qwen
  holdfast train lm --config config.json --data book.txt --epochs 20

The result is in the run's folder: model/, or adapter/ with --lora.
`;
