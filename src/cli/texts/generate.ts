/** `holdfast generate`: prints the texts of a model for prompts, as they are generated. */

import { type Command, Option } from "commander";
import { exitCodes, HoldfastError } from "../../errors/index.js";
import { type GenerateOptions, type Generation, withDefaults } from "../../generate/index.js";
import type { Tokenizer } from "../../text/index.js";
import { stopOnSignals } from "../../train/index.js";
import { realNumber, wholeNumber } from "../options.js";
import { type ModelOptions, type OpenedModel, openModel, withModelOptions } from "./open-model.js";
import { readStdin } from "./read-stdin.js";
import { StatusLine } from "./status-line.js";

interface CommandOptions extends ModelOptions {
  readonly prompt?: readonly string[];
  readonly chat?: boolean;
  readonly system?: string;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly topK?: number;
  readonly topP?: number;
  readonly repetitionPenalty?: number;
  readonly stop?: readonly string[];
  readonly seed?: number;
  readonly json?: boolean;
}

/** A text that is generated. */
interface Text {
  readonly prompt: string;
  readonly promptTokens: number;
  readonly generation: Generation;
}

const usualMaxTokens = 256;
/** Texts at a time. */
const maxSlots = 8;
/** A device may compile for longer, so a second thread ends the process. */
const stopWithinMs = 3000;

export function addGenerate(program: Command, end: (code: number) => void): void {
  withModelOptions(
    program.command("generate").description("generate text with a language model, for prompts or stdin"),
  )
    .addOption(
      new Option(
        "--prompt <text>",
        "the beginning of a text; several options make several texts (default: stdin)",
      ).argParser(collect),
    )
    .option("--chat", "the prompt is a message: write it as the model's chat template does")
    .option("--system <text>", "with --chat: the message of the system before the prompt")
    .addOption(
      new Option("--max-tokens <number>", "max. new tokens (default: the folder's, else 256)").argParser(
        wholeNumber(1),
      ),
    )
    .addOption(
      new Option(
        "--temperature <number>",
        "divides the logits; 0 selects the likeliest token (default: the folder's, else 0)",
      ).argParser(realNumber((value) => value >= 0 && value <= 1000, "a number from 0 to 1000")),
    )
    .addOption(
      new Option(
        "--top-k <number>",
        "draw among the k likeliest tokens; 0 for all (default: the folder's, else 50)",
      ).argParser(wholeNumber(0)),
    )
    .addOption(
      new Option(
        "--top-p <share>",
        "draw among the likeliest tokens with this share of probability (default: the folder's, else 1)",
      ).argParser(realNumber((value) => value > 0 && value <= 1, "a number above 0, up to 1")),
    )
    .addOption(
      new Option(
        "--repetition-penalty <number>",
        "divides the logits of tokens that the text has (default: the folder's, else 1)",
      ).argParser(realNumber((value) => value > 0 && Number.isFinite(value), "a number above 0")),
    )
    .addOption(
      new Option("--stop <text>", "end before this text; several options give several").argParser(collect),
    )
    .addOption(
      new Option("--seed <number>", "the same seed gives the same text (default: random)").argParser(
        wholeNumber(0),
      ),
    )
    .option("--json", "print one JSON object per text, when it has ended")
    .action(async (options: CommandOptions) => end(await generateTexts(options)));
}

function collect(text: string, before: readonly string[] = []): readonly string[] {
  return [...before, text];
}

/** Returns the exit code. */
async function generateTexts(options: CommandOptions): Promise<number> {
  const { chat = false, system } = options;
  if (system !== undefined && !chat)
    throw new HoldfastError("BAD_ARGUMENT", "--system needs --chat: only a chat has messages.");
  const stop = stopOnSignals({ withinMs: stopWithinMs, exitCode: exitCodes.stopped.code });
  const status = new StatusLine();
  let model: OpenedModel | undefined;
  try {
    const prompts = options.prompt ?? [await readStdin(stop.signal)];
    status.show(`loading ${options.model} …`);
    model = await openModel(options, Math.min(prompts.length, maxSlots), (text) => status.print(text));
    const { generator, tokenizer, config } = model;
    const settings = withDefaults(requested(options, stop.signal), {
      maxNewTokens: usualMaxTokens,
      ...config.options,
    });
    const startedMs = performance.now();
    const texts = prompts.map((prompt): Text => {
      const ids = chat ? chatIds(tokenizer, prompt, system) : tokenizer.encode(prompt);
      return { prompt, promptTokens: ids.length, generation: generator.start(ids, settings) };
    });
    status.show("generating …");
    for (const text of texts) await (options.json ? printJson(text) : printText(text, status));
    status.end(speedText(texts, performance.now() - startedMs));
    return exitCodes.ok.code;
  } catch (error) {
    status.end();
    if (!stop.signal.aborted) throw error;
    return exitCodes.stopped.code;
  } finally {
    model?.close();
    stop.close();
  }
}

/** The settings that the command line names. */
function requested(
  { maxTokens: maxNewTokens, temperature, topK, topP, repetitionPenalty, stop, seed }: CommandOptions,
  signal: AbortSignal,
): GenerateOptions {
  return {
    signal,
    ...(maxNewTokens !== undefined && { maxNewTokens }),
    ...(temperature !== undefined && { temperature }),
    ...(topK !== undefined && { topK }),
    ...(topP !== undefined && { topP }),
    ...(repetitionPenalty !== undefined && { repetitionPenalty }),
    ...(stop && { stop }),
    ...(seed !== undefined && { seed }),
  };
}

function chatIds(tokenizer: Tokenizer, prompt: string, system: string | undefined): Int32Array {
  const messages = [
    ...(system === undefined ? [] : [{ role: "system", content: system }]),
    { role: "user", content: prompt },
  ];
  const text = tokenizer.applyChatTemplate(messages, { addGenerationPrompt: true });
  return tokenizer.encode(text, { addSpecialTokens: false });
}

async function printText({ generation }: Text, status: StatusLine): Promise<void> {
  const isTerminal = process.stdout.isTTY;
  let last = "\n";
  try {
    for await (const piece of generation.pieces()) {
      status.clear();
      process.stdout.write(isTerminal ? withoutControls(piece) : piece);
      last = piece;
    }
  } finally {
    if (!last.endsWith("\n")) process.stdout.write("\n");
  }
}

/** A model must not control the terminal. */
function withoutControls(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these characters are replaced.
  return text.replaceAll(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, "\ufffd");
}

async function printJson({ prompt, promptTokens, generation }: Text): Promise<void> {
  const { text, tokens, finishReason } = await generation.result();
  const line = { prompt, text, finishReason, promptTokens, newTokens: tokens.length };
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

function speedText(texts: readonly Text[], elapsedMs: number): string {
  const tokens = texts.reduce((sum, { generation }) => sum + generation.length, 0);
  const seconds = elapsedMs / 1000;
  return `${tokens} tokens in ${seconds.toFixed(1)} s, ${(tokens / seconds).toFixed(1)} per second`;
}
