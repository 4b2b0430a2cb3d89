"""What the offline model says, in English and in Chinese.

Every text is true of a small built-in program: none claims more than it knows, can do or did.
"""

from __future__ import annotations

CONNECT = (
    "To connect a real model, set model.provider: openai, model.name, model.base_url and "
    "model.api_key"
    " in ~/.nanobot/config.yaml, or the variables NANOBOT_MODEL__PROVIDER, NANOBOT_MODEL__NAME,"
    " NANOBOT_MODEL__BASE_URL and NANOBOT_MODEL__API_KEY, and restart."
)
CONNECT_ZH = (
    "要连接真正的模型，请在 ~/.nanobot/config.yaml 里设置 model.provider: openai、"
    "model.name、model.base_url 和"
    " model.api_key，或者设置环境变量 NANOBOT_MODEL__PROVIDER、NANOBOT_MODEL__NAME、"
    "NANOBOT_MODEL__BASE_URL、"
    "NANOBOT_MODEL__API_KEY，然后重启。"
)

_TEXTS = {
    "help": (
        "I am nanobot's built-in offline model: a small fixed program, not a language model; "
        "I need no"
        " key and no network. I can\n"
        "- remember what you tell me (“remember that I park on level 3”) and answer "
        "questions about it\n"
        "- take a note for today (“note: buy milk”)\n"
        "- list, read, write, change, search and send files (“list files”, “read notes.txt”, "
        "“write hello to"
        " a.txt”, “replace X with Y in a.txt”, “search for foo in files”, “send me a.txt”)\n"
        "- remind you (“remind me in 20 minutes to stretch”), show a page of the web (“read "
        "https://…”), search the web (“search the web for …”) and run a command (“run `ls`”), where"
        " that is turned on\n"
        "- tell the time of your message\n" + CONNECT,
        "我是 nanobot 内置的离线模型：一个固定的小程序，不是大语言模型，不需要密钥，也不需要"
        "网络。我可以\n"
        "- 记住你告诉我的事（“记住我喜欢绿茶”），并回答相关的问题\n"
        "- 记今天的笔记（“记一下：买牛奶”）\n"
        "- 列出、读取、写入、修改、搜索和发送文件（“列出文件”、“读一下 notes.txt”、"
        "“把你好写入 a.txt”、“把 a.txt 发给我”）\n"
        "- 提醒你（“20分钟后提醒我喝水”）、看网页（“读一下 https://…”）、上网搜索（“上网搜索……”）、"
        "运行命令（“运行 `ls`”），如果这些功能已打开\n"
        "- 告诉你消息的时间\n" + CONNECT_ZH,
    ),
    "greeting": (
        "Hello! I am nanobot's built-in offline model. Tell me something to remember, ask me "
        "about it,"
        " or say “help”.",
        "你好！我是 nanobot 内置的离线模型。可以让我记住事情、问我记住的事，或者说“帮助”。",
    ),
    "thanks": ("You're welcome.", "不客气。"),
    "farewell": ("Goodbye!", "再见！"),
    "agreed": ("All right.", "好的。"),
    "remembered": ("I'll remember that. {facts}", "我记住了：{facts}"),
    "updated": ("Updated. {facts} (Before: {old})", "已更新：{facts}（之前：{old}）"),
    "known": ("I know that already. {facts}", "这个我已经知道了：{facts}"),
    "said_last": ("You said: “{text}”", "你刚才说：“{text}”"),
    "said_first": (
        "The first message of yours that I can see was: “{text}”",
        "我能看到的你的第一句话是：“{text}”",
    ),
    "said_all": ("In this conversation you said:\n{lines}", "这次对话里你说过：\n{lines}"),
    "said_lately": ("Lately you said:\n{lines}", "最近你说过：\n{lines}"),
    "nothing_said_before": (
        "This is the first message of yours that I can see.",
        "这是我能看到的你的第一句话。",
    ),
    "forget_all": (
        "I don't empty my memory at a word. Everything I keep is in memory/MEMORY.md: edit that "
        "file or remove lines from it, or name one fact for me to forget.",
        "我不会一句话就清空记忆。我记住的都在 memory/MEMORY.md 里：请编辑这个文件、删掉其中的内容，"
        "或者告诉我要忘掉哪一件事。",
    ),
    "nothing_said": (
        "What should I remember? Say “remember that …”.", "要我记住什么呢？请说“记住……”。",
    ),
    "cannot_store": (
        "I cannot store that: I have no tool to change files here. It stays in this "
        "conversation only.",
        "我没法保存：这里没有修改文件的工具。它只留在这次对话里。",
    ),
    "store_failed": (
        "I could not store that in memory/MEMORY.md: {reason}. Once that is mended, tell me again.",
        "没能保存到 memory/MEMORY.md：{reason}。问题解决后请再告诉我一次。",
    ),
    "waits": (
        "That waits for your word, since I have read text from elsewhere in this conversation: see "
        "the message above.",
        "因为这次对话里我读过别处的文字，这件事要等你确认：请看上面的消息。",
    ),
    "forgotten": ("Forgotten. It was: {old}", "已忘记：{old}"),
    "nothing_to_forget": (
        "I find nothing about that in memory/MEMORY.md, so there is nothing to forget.",
        "memory/MEMORY.md 里没有类似的内容，没有什么可忘的。",
    ),
    "unknown": (
        "I don't know that. I find nothing about it in this conversation or in my memory.",
        "这个我不知道。这次对话和我的记忆里都没有相关内容。",
    ),
    "on_record": ("This is what I have on record: {text}", "我的记录是：{text}"),
    "found_told": ("You told me on {when}: “{text}”", "你在 {when} 告诉过我：“{text}”"),
    "found_summary": (
        "From my summary of a conversation of {when}: {text}",
        "我 {when} 的对话摘要里写着：{text}",
    ),
    "found_note": ("From the notes of {when}: {text}", "{when} 的笔记里写着：{text}"),
    "found_document": ("In {where} I found: {text}", "我在 {where} 里找到：{text}"),
    "found_retired": (
        "I only have what is no longer true, since {when}: {text}",
        "我只有一条已经过时的记录（到 {when} 为止）：{text}",
    ),
    "found_line": (
        "I found this in earlier conversations: {text}",
        "我在以前的对话里找到：{text}",
    ),
    "all_known": ("This is what I know about you:\n{lines}", "我知道的是：\n{lines}"),
    "nothing_known": (
        "I know nothing about you yet. Tell me something, such as “my favourite colour is blue”.",
        "我还什么都不知道。可以告诉我，比如“我喜欢绿茶”。",
    ),
    "all_notes": ("Today's notes:\n{lines}", "今天的笔记：\n{lines}"),
    "no_notes": ("There are no notes for today that I can see.", "我没有看到今天的笔记。"),
    "noted": ("Noted: {text}", "记下了：{text}"),
    "noted_reminder": (
        "I wrote it into today's notes: {text}. I cannot remind you at a time by myself.",
        "已写进今天的笔记：{text}。我自己没法到时提醒你。",
    ),
    "noted_no_time": (
        "I wrote it into today's notes: {text}. To be reminded, say when: “remind me in 20 minutes"
        " to …”, “remind me tomorrow at 9 to …”, “every day at 8 remind me to …”.",
        "已写进今天的笔记：{text}。要到时提醒，请说明时间，比如“20分钟后提醒我……”、“明天9点提醒我……”、"
        "“每天8点提醒我……”。",
    ),
    "will_remind": ("I'll remind you: {text} ({when}).", "到时我会提醒你：{text}（{when}）。"),
    "reminder": ("Reminder: {text}", "提醒：{text}"),
    "reminders": ("Scheduled:\n{text}", "定时任务：\n{text}"),
    "cancelled": ("Done: {id} is cancelled.", "好了，已取消 {id}。"),
    "ran": ("It printed:\n\n```\n{text}\n```", "输出：\n\n```\n{text}\n```"),
    "skill_says": ("{text}", "{text}"),
    "wrote": ("Done: I wrote {path}.", "好了，已写入 {path}。"),
    "created_empty": ("Done: I created the empty file {path}.", "好了，已创建空文件 {path}。"),
    "appended": ("Done: I added it at the end of {path}.", "好了，已追加到 {path} 末尾。"),
    "replaced": (
        "Done: I replaced “{old}” with “{new}” in {path}.",
        "好了，已把 {path} 里的“{old}”换成“{new}”。",
    ),
    "file_says": ("{path}:\n\n{text}", "{path} 的内容：\n\n{text}"),
    "sent": ("Here is {path}.", "{path} 发给你了。"),
    "file_empty": ("{path} is empty.", "{path} 是空的。"),
    "more": ("\n[… {count:,} more characters]", "\n[……还有 {count:,} 个字符]"),
    "listing": ("Files in {path}:\n{text}", "{path} 里有：\n{text}"),
    "workspace": ("the workspace", "工作区"),
    "none_found": ("Nothing found.", "没有找到。"),
    "found": ("Found:\n{text}", "找到：\n{text}"),
    "failed": ("That did not work ({what}): {reason}", "没有成功（{what}）：{reason}"),
    "no_tool": (
        "I cannot do that here: the tool {tool} is not available.",
        "我现在做不了：没有 {tool} 工具。",
    ),
    "time": (
        "It is {time} on {day}, {date}{zone}, by the time stamp of your message.",
        "现在是 {date}（{day}）{time}{zone}，以你的消息时间为准。",
    ),
    "no_time": (
        "I cannot know the time: messages carry no time stamp (agent.timestamps is off).",
        "我不知道时间：消息没有时间标记（agent.timestamps 是 off）。",
    ),
    "heard": (
        "Okay, I have that for this conversation. Say “remember that” and I will store it.",
        "好的，这次对话里我记着。说“记住”，我就把它保存下来。",
    ),
    "cut": (
        "(Your message is very long; I looked at its first {count:,} characters only.)",
        "（消息太长，我只看了前 {count:,} 个字符。）",
    ),
    "unclear_0": (
        "I am nanobot's built-in offline model and did not understand that. I can remember "
        "facts, answer"
        " questions about them, take notes and work with files; “help” shows how.",
        "我是 nanobot 内置的离线模型，没听懂这句话。我可以记住事情、回答相关问题、记笔记和处"
        "理文件；说“帮助”看用法。",
    ),
    "unclear_1": (
        "That is beyond me: I am a small offline program, not a language model. Try "
        "“remember that …”,"
        " “note: …” or “read notes.txt”.",
        "这个我做不到：我只是一个离线小程序，不是大语言模型。试试“记住……”、“记一下……”或“读一"
        "下 notes.txt”。",
    ),
    "unclear_2": (
        "I can't do anything sensible with that. For free conversation nanobot needs a real "
        "model; say"
        " “help” to see how to connect one.",
        "这个我没法好好回答。要自由聊天，nanobot 需要连接真正的模型；说“帮助”看怎么连接。",
    ),
}  # fmt: skip

_SHOWN = 6_000
"""Characters of a file or a listing that go into a reply."""

_DAYS = (
    ("Monday", "星期一"), ("Tuesday", "星期二"), ("Wednesday", "星期三"), ("Thursday", "星期四"),
    ("Friday", "星期五"), ("Saturday", "星期六"), ("Sunday", "星期日"),
)  # fmt: skip


def say(key: str, chinese: bool, **values: object) -> str:
    """A text in the person's language, its gaps filled."""
    return _TEXTS[key][chinese].format(**values)


def trouble(missing: str, what: str, reason: str, chinese: bool) -> str:
    """Why something could not be done; `missing` names the tool where there is none."""
    if missing:
        return say("no_tool", chinese, tool=missing)
    return say("failed", chinese, what=what, reason=reason)


def clipped(text: str, most: int | None, chinese: bool) -> str:
    """As much of a result as goes into a reply: `most` characters, or the usual number."""
    most = most or _SHOWN
    text = text.rstrip("\n")
    if len(text) <= most:
        return text
    return text[:most] + say("more", chinese, count=len(text) - most)


def weekday(number: int, chinese: bool) -> str:
    """The name of a day; Monday is 0."""
    return _DAYS[number][chinese]
