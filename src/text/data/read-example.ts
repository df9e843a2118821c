/** An example of a `.jsonl` file: a text, a prompt with its completion, or a chat. */

import { HoldfastError } from "../../errors/index.js";
import type { ChatMessage } from "../chat/index.js";
import { type JsonField, parseJson } from "../json-field.js";

/** What a line says. */
export type Example =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "completion"; readonly prompt: string; readonly completion: string }
  | {
      readonly kind: "chat";
      readonly messages: readonly ChatMessage[];
      /** Answers before this message do not count in the loss. */
      readonly firstAnswer: number;
      readonly tools: readonly unknown[] | undefined;
    };

const limits = { maxContainers: 200_000, maxValues: 1_000_000, maxDepth: 64 };
const maxCharacters = 64 * 2 ** 20;
const maxMessages = 10_000;
const advice = "Correct the line, or remove it.";

/** Reads a line of a `.jsonl` file. `where` names the line in errors. */
export function readExample(where: string, bytes: Uint8Array): Example {
  const line = parseJson(bytes, where, limits, advice);
  const [text, prompt, completion, messages] = ["text", "prompt", "completion", "messages"].map((name) =>
    line.get(name),
  ) as [JsonField, JsonField, JsonField, JsonField];
  const tools = line.get("tools");
  const chat = (list: readonly ChatMessage[], firstAnswer: number): Example => ({
    ...{ kind: "chat", messages: list, firstAnswer },
    tools: tools.isAbsent ? undefined : tools.list(),
  });
  if (!messages.isAbsent) return chat(messagesIn(messages), 0);
  if (!prompt.isAbsent || !completion.isAbsent) {
    if (prompt.isList || completion.isList) {
      const before = messagesIn(prompt);
      return chat([...before, ...messagesIn(completion)], before.length);
    }
    return {
      kind: "completion",
      prompt: prompt.string(maxCharacters),
      completion: completion.string(maxCharacters),
    };
  }
  if (!text.isAbsent) return { kind: "text", text: text.string(maxCharacters) };
  const names = Object.keys(line.record()).slice(0, 8);
  const found =
    names.length === 0 ? "no fields" : `the fields ${names.map((name) => name.slice(0, 40)).join(", ")}`;
  throw new HoldfastError(
    "BAD_FILE",
    `${where} has ${found}. It needs "text", or "prompt" and "completion", or "messages". ${advice}`,
  );
}

function messagesIn(field: JsonField): readonly ChatMessage[] {
  return field.items(maxMessages).map((message) => {
    const role = message.get("role").string(100);
    const content = message.get("content");
    if (!content.isAbsent && !content.isString && !content.isList) throw content.wrong("a string or a list");
    return { ...message.record(), role, content: content.value ?? null };
  });
}
