/** `holdfast generate` and `holdfast serve`: texts on stdout, the settings of a folder, and the ends of both commands. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { makeFolder } from "../../../test/support/folders.js";
import { runCommand } from "../../../test/support/run-command.js";
import { plainDevice, shortRunFlags } from "../../../test/support/short-process.js";
import { packagePath } from "../../files/index.js";
import { generate } from "../../generate/index.js";
import { loadPretrained, modelFromConfig, savePretrained } from "../../models/index.js";
import { device as openDevice } from "../../tensor/index.js";
import { ByteTokenizer, saveTokenizer } from "../../text/index.js";

const folder = join(makeFolder(), "tiny");
const sizes = { vocab_size: 257, n_positions: 96, n_embd: 16, n_layer: 1, n_head: 2, initializer_range: 0.4 };
const chatTemplate =
  "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
const tokenizer = new ByteTokenizer({ eosToken: "<end>", chatTemplate });
const device = await openDevice("cpu");
savePretrained(modelFromConfig({ model_type: "gpt2", ...sizes }).to(device), folder);
saveTokenizer(tokenizer, folder);
const settings = {
  do_sample: true,
  temperature: 0.7,
  top_p: 0.9,
  repetition_penalty: 1.1,
  min_p: 0.1,
  max_new_tokens: 12,
};
writeFileSync(join(folder, "generation_config.json"), JSON.stringify(settings));
const drawn = { temperature: 0.7, topK: 50, topP: 0.9, repetitionPenalty: 1.1, seed: 4 };
const chat = "<system>Be brief<user>Hi<assistant>";
const model = loadPretrained(folder, { device });
const [expected, greedy, answer] = await Promise.all([
  generate(model, ["Hello", "A"], { ...drawn, tokenizer, maxNewTokens: 12 }),
  generate(model, ["Hello"], { tokenizer, maxNewTokens: 5, repetitionPenalty: 1.1 }),
  generate(model, [chat], { ...drawn, tokenizer, maxNewTokens: 12, stop: "e" }),
]);
device.close();

const args = ["generate", "--model", folder, "--device", "cpu", "--seed", "4"];

test("texts are printed with the settings of the folder, and those of the command line before them", async () => {
  const { status, stdout, stderr } = await runCommand([...args, "--prompt", "Hello", "--prompt", "A"]);
  assert.deepEqual([status, stdout], [0, expected.map(({ text }) => `${text}\n`).join("")], stderr);
  assert.equal(stderr, "holdfast: generation_config.json: not supported, no effect: min_p\n");
  const other = ["--temperature", "0", "--max-tokens", "5"];
  assert.equal((await runCommand([...args, "--prompt", "Hello", ...other])).stdout, `${greedy[0]?.text}\n`);
});

test("a chat is written by the template, and --json prints an object for each text", async () => {
  const more = ["--chat", "--system", "Be brief", "--prompt", "Hi", "--stop", "e", "--json"];
  const { stdout } = await runCommand([...args, ...more]);
  const [{ text, finishReason, tokens } = assert.fail()] = answer;
  const numbers = { promptTokens: chat.length, newTokens: tokens.length };
  assert.deepEqual(JSON.parse(stdout), { prompt: "Hi", text, finishReason, ...numbers });
});

test("a missing folder, a wrong setting and a long prompt are errors with exit code 4 or 2", async () => {
  for (const [more, code, message] of [
    [["--model", join(folder, "none"), "--prompt", "a"], 4, /BAD_FILE: .*tokenizer\.json/],
    [["--prompt", "a".repeat(200)], 4, /BAD_ARGUMENT: The prompt has 200 tokens/],
    [["--prompt", "a", "--system", "b"], 4, /BAD_ARGUMENT: --system needs --chat/],
    [["--prompt", "a", "--temperature", "-1"], 2, /a number from 0 to 1000/],
  ] as const) {
    const { status, stderr } = await runCommand([...args, ...more]);
    assert.equal(status, code, stderr);
    assert.match(stderr, message);
  }
});

test("serve prints its address, answers, and ends with exit code 0 after SIGTERM", async () => {
  const { PATH = "" } = process.env;
  const child = spawn(
    process.execPath,
    [
      ...shortRunFlags,
      packagePath("dist/lib/main.js"),
      "serve",
      "--model",
      folder,
      "--device",
      "cpu",
      "--port",
      "0",
    ],
    { env: { PATH, ...plainDevice }, stdio: ["ignore", "pipe", "inherit"] },
  );
  const [line] = (await once(child.stdout, "data")) as [Buffer];
  const [, url = assert.fail(String(line))] =
    /^tiny at (http:\/\/127\.0\.0\.1:\d+\/v1)\n$/.exec(String(line)) ?? [];
  const response = await fetch(`${url}/completions`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ prompt: "Hello", seed: 4, max_tokens: 12 }),
  });
  const { choices } = (await response.json()) as { choices: readonly { text: string }[] };
  assert.equal(choices[0]?.text, expected[0]?.text);
  child.kill("SIGTERM");
  assert.deepEqual(await once(child, "exit"), [0, null]);
});
