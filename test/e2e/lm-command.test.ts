/** `holdfast train lm` as a person runs it: from texts to a folder that `holdfast generate` reads, ended and resumed, and wrong options. */

import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { exitCodes } from "../../src/errors/index.js";
import { readRun } from "../../src/train/index.js";
import { type CommandOptions, startCommandHost } from "../support/command-host.js";
import { jobEnvironment, recordsIn, tensorsIn } from "../support/crossasset-runs.js";
import { makeFolder } from "../support/folders.js";
import { testDevice } from "../support/test-device.js";

const onCpu = { skip: testDevice !== "cpu" && "the command runs on the CPU" };
const folder = makeFolder();
const at = (...names: readonly string[]): string => join(folder, ...names);

// The program takes a second to load: one process runs all commands.
const host = startCommandHost(folder, jobEnvironment);
after(() => host.close());

const holdfast = (args: readonly string[], options?: CommandOptions) => host.run(args, options);
const train = (args: readonly string[], options?: CommandOptions) =>
  holdfast(["train", "lm", "--device", "cpu", ...args], options);

const sizes = { hidden_size: 16, intermediate_size: 24, num_hidden_layers: 1, num_attention_heads: 2 };
const config = { model_type: "llama", ...sizes, max_position_embeddings: 32 };
const verse = "One for sorrow,\nTwo for mirth,\nThree for a funeral,\nFour for birth.\n";

before(() => {
  writeFileSync(at("config.json"), JSON.stringify(config));
  writeFileSync(at("verse.txt"), verse.repeat(12));
  writeFileSync(at("other.txt"), "Five for heaven,\nSix for hell.\n".repeat(20));
  const lines = [1, 2, 3, 4].map((n) => JSON.stringify({ prompt: `${n}+1=`, completion: `${n + 1}` }));
  writeFileSync(at("sums.jsonl"), `${lines.join("\n")}\n`);
});

/** A new model, and LoRA on it. */
const scratch = ["--config", "config.json", "--data", "verse.txt", "--epochs", "3", "--batch", "6"];
const adapt = [
  ...["--model", "runs/whole/model", "--data", "other.txt", "--epochs", "3", "--batch", "3", "--lr", "0.01"],
  ...["--lora", "--lora-rank", "4", "--lora-dropout", "0.1", "--lora-targets", "q_proj", "down_proj"],
  ...["--merge", "--accumulate", "2", "--eval-every", "2"],
];

describe("a training of a language model", onCpu, () => {
  test("trains a new model, prints its progress, and saves a folder that generate reads", async () => {
    const more = ["--sample", "One for", "--sample-tokens", "8", "--out", "runs/whole"];
    const { status, stdout, stderr } = await train([...scratch, ...more]);
    assert.deepEqual([status, stderr], [0, ""]);
    assert.match(stdout, /^model {4}Llama, [\d,]+ parameters$/m);
    assert.match(stdout, /^data {5}[\d,]+ tokens in \d+ rows; \d+ rows to evaluate on$/m);
    assert.match(stdout, /^step 0 {2}evaluation: loss 5\.\d+, perplexity \d+\.\d$/m);
    assert.match(stdout, /^step \d+ {2}sample: One for▸/m);
    assert.match(stdout, /^epoch 3\/3 {2}loss \d\.\d{4} {2}[\d,]+ tokens\/s {2}\d+/m);
    assert.match(stdout, /^perplexity on \d+ held-out tokens: \d+\.\d+ before, \d+\.?\d* after$/m);
    assert.match(stdout, /^To write a text: holdfast generate --model runs\/whole\/model --prompt/m);
    assert.deepEqual(readdirSync(at("runs/whole/model")), [
      ...["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"],
    ]);
    const saved = JSON.parse(readFileSync(at("runs/whole/model/config.json"), "utf8"));
    assert.deepEqual([saved.vocab_size, saved.eos_token_id], [257, 256]);

    const generate = ["generate", "--device", "cpu", "--model", "runs/whole/model", "--prompt", "One for"];
    const text = await holdfast([...generate, "--max-tokens", "8", "--json"]);
    assert.equal(text.status, 0, text.stderr);
    const { texts } = readRun(at("runs/whole")).metrics.findLast((line) => line["texts"]) as {
      texts: readonly { text: string }[];
    };
    assert.equal(JSON.parse(text.stdout).text, texts[0]?.text, "as the last sample of the training");
  });

  for (const { name, args, kill, whole } of [
    { name: "all weights", args: scratch, kill: '"kind":"checkpoint","step":5', whole: "runs/whole-again" },
    { name: "LoRA with dropout", args: adapt, kill: '"kind":"checkpoint","step":4', whole: "runs/lora" },
  ]) {
    test(`of ${name} that SIGTERM ends resumes to the same bits`, async () => {
      const uninterrupted = await train([...args, "--quiet", "--out", whole]);
      assert.deepEqual([uninterrupted.status, uninterrupted.stdout, uninterrupted.stderr], [0, "", ""]);
      const cut = `${whole}-cut`;
      const ended = await train([...args, "--json", "--out", cut], {
        signal: { name: "SIGTERM", at: kill },
      });
      assert.equal(ended.status, exitCodes.stopped.code, ended.stderr);
      assert.equal(readRun(at(cut)).status?.state, "stopped");
      const resumed = await train([...args, "--resume", "--out", cut]);
      assert.equal(resumed.status, 0, resumed.stderr);
      assert.match(resumed.stdout, /^resumed at step \d+ from step-0+\d+\.safetensors$/m);
      assert.deepEqual(recordsIn(at(cut)), recordsIn(at(whole)));
      assert.equal(tensorsIn(at(cut)), tensorsIn(at(whole)));
      for (const file of ["model/model.safetensors", "adapter/adapter_model.safetensors"]) {
        if (name === "all weights" && file.startsWith("adapter")) continue;
        assert.deepEqual(readFileSync(at(cut, file)), readFileSync(at(whole, file)), file);
      }
    });
  }

  test("of LoRA leaves the base as it is, and generate reads the adapter and the merged model", async () => {
    assert.deepEqual(readdirSync(at("runs/lora/adapter")), [
      ...["adapter_config.json", "adapter_model.safetensors", "tokenizer.json", "tokenizer_config.json"],
    ]);
    const adapter = JSON.parse(readFileSync(at("runs/lora/adapter/adapter_config.json"), "utf8"));
    assert.deepEqual(
      [adapter.r, adapter.lora_alpha, adapter.lora_dropout, adapter.target_modules],
      [4, 8, 0.1, ["down_proj", "q_proj"]],
    );
    assert.equal(adapter.base_model_name_or_path, "runs/whole/model");
    const write = async (...model: readonly string[]): Promise<string> => {
      const args = ["generate", "--device", "cpu", "--prompt", "Five for", "--max-tokens", "12", ...model];
      const { status, stdout, stderr } = await holdfast(args);
      assert.equal(status, 0, stderr);
      return stdout;
    };
    const base = await write("--model", "runs/whole/model");
    const adapted = await write("--model", "runs/whole/model", "--adapter", "runs/lora/adapter");
    assert.equal(adapted, await write("--model", "runs/lora/model"));
    assert.notEqual(adapted, base);
    const { results } = readRun(at("runs/lora"));
    const [first, ...rest] = (results?.["evaluations"] ?? []) as { perplexity: number }[];
    assert.ok((rest.at(-1)?.perplexity ?? 999) < (first?.perplexity ?? 0), "LoRA improves on its text");
  });

  test("says how it ended, and is not run again or with other settings", async () => {
    const again = await train([...scratch, "--out", "runs/whole-again"]);
    assert.equal(again.status, 0);
    assert.match(again.stdout, /^The run in runs\/whole-again is already finished\./);
    const other = await train([...scratch, "--lr", "0.5", "--out", "runs/whole-again"]);
    assert.equal(other.status, exitCodes.rejected.code);
    assert.match(other.stderr, /^holdfast: BAD_SETTING: .*lr was 0\.001 and is now 0\.5/);
    writeFileSync(at("verse.txt"), `${verse.repeat(12)}more\n`);
    const status = at("runs/whole-again/status.json");
    writeFileSync(status, readFileSync(status, "utf8").replace('"finished"', '"stopped"'));
    const changed = await train([...scratch, "--out", "runs/whole-again"]);
    assert.equal(changed.status, exitCodes.rejected.code);
    assert.match(changed.stderr, /dataChecksum was "\w+" and is now "\w+"/);
  });
});

describe("wrong options of train lm", onCpu, () => {
  const model = ["--config", "config.json"];
  const usage: readonly (readonly [readonly string[], RegExp])[] = [
    [[...model], /required option '--data <files\.\.\.>' not specified/],
    [[...model, "--data", "verse.txt", "--epochs", "0"], /--epochs.*whole number, 1 or more/],
    [[...model, "--data", "verse.txt", "--length", "1"], /--length.*whole number, 2 or more/],
    [[...model, "--data", "verse.txt", "--lr", "fast"], /--lr.*a number above 0/],
    [[...model, "--data", "verse.txt", "--warmup", "1"], /--warmup.*from 0 to below 1/],
    [[...model, "--data", "verse.txt", "--schedule", "square"], /--schedule.*cosine, linear, constant/],
    [[...model, "--data", "verse.txt", "--long-texts", "keep"], /--long-texts.*split, truncate, drop/],
    [[...model, "--data", "verse.txt", "--lora-dropout", "1"], /--lora-dropout.*from 0 to below 1/],
    [[...model, "--data", "verse.txt", "--ranks", "4"], /unknown option '--ranks'/],
  ];
  const rejected: readonly (readonly [readonly string[], RegExp])[] = [
    [["--data", "verse.txt"], /^BAD_ARGUMENT: --model or --config is missing\./],
    [[...model, "--model", "x", "--data", "verse.txt"], /^BAD_ARGUMENT: --model and --config exclude/],
    [[...model, "--lora", "--data", "verse.txt"], /^BAD_ARGUMENT: --lora needs --model/],
    [
      [...model, "--lora-rank", "4", "--data", "verse.txt"],
      /^BAD_ARGUMENT: --lora-rank has no effect without/,
    ],
    [
      [...model, "--sample-tokens", "4", "--data", "verse.txt"],
      /^BAD_ARGUMENT: --sample-tokens has no effect/,
    ],
    [
      [...model, "--data", "verse.txt", "--held-out", "0.1", "--eval-data", "other.txt"],
      /^BAD_ARGUMENT: --held-out and --eval-data exclude/,
    ],
    [
      ["--model", "absent", "--data", "verse.txt"],
      /^BAD_FILE: absent\/config\.json can't be read.*ENOENT|not exist/,
    ],
    [["--config", "verse.txt", "--data", "verse.txt"], /^BAD_FILE: verse\.txt is not JSON/],
    [[...model, "--data", "absent.txt"], /^BAD_FILE: absent\.txt/],
    [[...model, "--data", "config.json"], /^BAD_ARGUMENT: config\.json must end in \.txt.*or \.jsonl/],
    [
      [...model, "--data", "verse.txt", "--length", "64"],
      /^BAD_ARGUMENT: The rows of the training texts have 64/,
    ],
    [
      [...model, "--data", "verse.txt", "--sample", "x".repeat(40)],
      /^BAD_ARGUMENT: The prompt "x+…" has 40 tokens; the model has 32 positions/,
    ],
    [
      [...model, "--data", "verse.txt", "--sample", "x", "--sample-chat"],
      /^BAD_ARGUMENT: The tokenizer has no chat template/,
    ],
    [
      ["--config", "bert.json", "--data", "verse.txt"],
      /^BAD_ARGUMENT: bert\.json has a Bert.*Pass a decoder/,
    ],
    [
      [...model, "--data", "chat.jsonl"],
      /^BAD_ARGUMENT: chat\.jsonl, line 1: The tokenizer has no chat template/,
    ],
    [
      ["--config", "small.json", "--data", "verse.txt"],
      /^BAD_ARGUMENT: .*has the id 1\d\d, and the model has the ids 0 to 9/,
    ],
  ];

  before(() => {
    const bert = { model_type: "bert", vocab_size: 300, ...sizes, max_position_embeddings: 64 };
    writeFileSync(at("bert.json"), JSON.stringify(bert));
    writeFileSync(at("small.json"), JSON.stringify({ ...config, vocab_size: 10 }));
    writeFileSync(
      at("chat.jsonl"),
      '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}\n',
    );
    mkdirSync(at("unstarted"));
  });

  test("end with exit code 2 or 4 and one line that says what to do, and leave no run", async () => {
    for (const [code, list] of [
      [exitCodes.usage.code, usage],
      [exitCodes.rejected.code, rejected],
    ] as const) {
      for (const [args, says] of list) {
        const { status, stdout, stderr } = await train([...args, "--out", "unstarted/run"]);
        assert.deepEqual([status, stdout], [code, ""], `${args.join(" ")}\n${stderr}`);
        const [first = "", second] = stderr.split("\n");
        assert.match(first.replace("holdfast: ", ""), says);
        assert.equal(second, code === 2 ? "Run holdfast train lm --help to see its options." : "");
        assert.deepEqual(readdirSync(at("unstarted")), []);
      }
    }
  });

  test("--help lists the options in groups, with examples", async () => {
    const { status, stdout } = await holdfast(["train", "lm", "--help"]);
    assert.equal(status, 0);
    const groups = stdout.match(/^[A-Z]\w+:$/gm);
    assert.deepEqual(groups, [
      ...[
        "Model:",
        "Data:",
        "Training:",
        "LoRA:",
        "Samples:",
        "Device:",
        "Run:",
        "Output:",
        "Options:",
        "Examples:",
      ],
    ]);
    assert.deepEqual(
      stdout.split("\n").filter((line) => line.length > 80),
      [],
    );
  });
});
