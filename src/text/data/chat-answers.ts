/**
 * The texts of a chat, and where the assistant's answers are in them. A template that marks answers says it. For any other template, the
 * chat is written up to each answer, with and without the answer, and the two texts are compared. A template may write earlier answers
 * differently in a longer chat, for example without their reasoning. Then the chat becomes several texts, each as the model will see it.
 */

import { HoldfastError } from "../../errors/index.js";
import type { ChatMessage, ChatTemplate, ChatTemplateOptions, TextSpan } from "../chat/index.js";

/** A text, and the parts of it that count in the loss. */
export interface AnsweredText {
  readonly text: string;
  readonly answers: readonly TextSpan[];
}

/** The texts of a chat with the answers from message `firstAnswer` on. */
export function findAnswers(
  template: ChatTemplate,
  messages: readonly ChatMessage[],
  firstAnswer: number,
  options: ChatTemplateOptions,
): readonly AnsweredText[] {
  const asked = messages.flatMap(({ role }, index) =>
    role === "assistant" && index >= firstAnswer ? [index] : [],
  );
  if (asked.length === 0) {
    throw new HoldfastError(
      "BAD_FILE",
      `The chat has ${messages.length} messages and no answer of the role "assistant", so there is nothing to learn. Add the answer, or remove the chat.`,
      { numbers: { messages: messages.length } },
    );
  }
  if (template.marksAnswers) {
    const rendered = template.renderWithAnswers(messages, options);
    const before = messages.slice(0, firstAnswer).filter(({ role }) => role === "assistant").length;
    return [{ text: rendered.text, answers: rendered.answers.slice(before) }];
  }
  const texts: { text: string; answers: TextSpan[] }[] = [];
  for (const index of asked) {
    const earlier = messages.slice(0, index);
    const prompt = template.render(earlier, { ...options, addGenerationPrompt: true });
    const text = template.render(messages.slice(0, index + 1), options);
    const answer = { start: startOfAnswer(template, earlier, { prompt, text, options }), end: text.length };
    const last = texts.at(-1);
    if (last && text.startsWith(last.text) && answer.start >= last.text.length) {
      last.text = text;
      last.answers.push(answer);
    } else texts.push({ text, answers: [answer] });
  }
  return texts;
}

/**
 * The answer starts where the prompt ends. A template may begin the prompt for an answer with words that it does not write before an answer
 * that is there, such as the start of reasoning. Then the answer starts where the two texts differ.
 */
function startOfAnswer(
  template: ChatTemplate,
  earlier: readonly ChatMessage[],
  { prompt, text, options }: { prompt: string; text: string; options: ChatTemplateOptions },
): number {
  if (text.startsWith(prompt)) return prompt.length;
  const messages = template.render(earlier, options);
  const start = commonLength(prompt, text);
  if (text.startsWith(messages) && start >= messages.length) return start;
  throw new HoldfastError(
    "BAD_FILE",
    `The chat template changes the messages before answer ${earlier.length} when the answer is there, so the start of the answer is unknown. ` +
      "Mark the answers in the template with {% generation %} and {% endgeneration %}.",
    { numbers: { message: earlier.length } },
  );
}

function commonLength(first: string, second: string): number {
  let length = 0;
  while (length < first.length && first[length] === second[length]) length += 1;
  return length;
}
