/** chat: renders chats with the Jinja templates of model folders, within limits. */

export { ChatTemplate, type ChatTemplateOptions, type RenderedChat, type TextSpan } from "./chat-template.js";
export type { ChatMessage } from "./message.js";
