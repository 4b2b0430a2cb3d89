"""The wordings of requests about files and notes: a pattern, and what it asks for.

The named groups are the arguments. Every pattern is matched from the beginning of a text, and no
repetition stands inside another one.
"""

from __future__ import annotations

QUOTES = "\"'`“”「」‘’"
_PATH = (
    rf"(?:[{QUOTES}](?P<quoted>[^{QUOTES}\n]{{1,200}})[{QUOTES}]|"
    rf"(?P<path>[^\s{QUOTES}，。；：,;]{{1,200}}?))"
)
_ZH_PATH = (
    rf"[{QUOTES}]?(?P<path>[^\s{QUOTES}，。；：,;]{{0,200}}?\.[A-Za-z][A-Za-z0-9]{{0,7}}"
    rf"(?![A-Za-z0-9./_-])"
    rf"|[A-Za-z0-9_./~-]{{1,200}}(?![A-Za-z0-9./_-]))[{QUOTES}]?"
)
PLEASE = r"(?:please\s+|请|帮我|麻烦)?"
"""What may stand before a request of `OPEN`."""

STARTS = frozenset(
    """please create make write add start save append take leave jot note put store replace
    change swap in touch list show display give see what which are ls dir find locate search where
    grep look read open cat print view check tell the contents content send share attach""".split()  # noqa: SIM905 - a list literal would be unreadable
)
"""The words that a request in English can begin with."""

_END = r"\s*[.!?。！？]?\s*$"
_FILE = (
    r"(?:the\s+|my\s+|a\s+|an\s+|this\s+)?(?:new\s+|text\s+|empty\s+)?"
    r"(?P<file>file\s+)?(?:called\s+|named\s+)?"
)
_IN = r"(?:in|inside|under|within|of|from|at|on)"
_WITH = (
    r"(?:,?\s*(?:with|containing|that\s+(?:says|contains|reads)|saying|whose\s+content\s+is|and\s+"
    r"(?:write|put))\b\s*(?:the\s+)?(?:content|contents|text|words?|line|"
    r"following)?\s*(?:in\s+it)?\s*+:?+\s*+|:\s+|:\n)"
)

# Rules whose last part is free text: they take the rest of the message.
OPEN: tuple[tuple[str, str], ...] = (
    (rf"(?:create|make|write|add|start|save)\s+{_FILE}{_PATH}{_WITH}(?P<content>.+)$", "write"),
    (rf"write\s+(?:in)?to\s+{_FILE}{_PATH}\s*(?::|,)\s*(?P<content>.+)$", "write"),
    (rf"(?:append|add)\s+to\s+{_FILE}{_PATH}\s*(?::|,)\s*(?P<content>.+)$", "append"),
    (r"(?:take|make|write|add|leave|jot\s+down|save)\s+(?:me\s+)?(?:a\s+)?(?:quick\s+|"
     r"short\s+|daily\s+)?note"
     r"(?:\s+to\s+self)?(?:\s+for\s+(?:me|today))?\s*(?:that\s+|:\s*|,\s*|saying\s+|"
     r"of\s+|about\s+|to\s+|-\s+)(?P<text>.+)$", "note"),
    (r"(?:note|jot|write)\s+(?:this\s+|that\s+)?down\s*(?:that\b|:|,)?\s*(?P<text>.+)$", "note"),
    (r"(?:jot\s+down)\s+(?P<text>.+)$", "note"),
    (r"note(?:\s+to\s+(?:self|myself))?\s*[:：,]\s*(?P<text>.+)$", "note"),
    (r"(?:please\s+)?note\s+that\s+(?P<text>.+)$", "note"),
    (r"(?:记一下|记下来?|记个笔记|做个笔记|写个笔记|记一条笔记|记笔记|添加笔记|笔记|备忘|"
     r"写个备忘|记录一下|记录)"
     r"\s*[:：,，]?\s*(?P<text>.+)$", "note"),
    (rf"(?:创建|新建|建立|写)(?:一个|个)?(?:新)?(?P<file>文件)?(?:叫|名为)?\s*{_ZH_PATH}\s*"
     rf"(?:[,，]\s*)?(?:的文件)?(?:[,，]\s*)?"
     r"(?:内容(?:是|为)?|写(?:上|入)?|里面写)\s*[:：]?\s*(?P<content>.+)$", "write"),
    (rf"(?:在|往|向)\s*{_ZH_PATH}\s*(?:文件)?(?:的)?(?:末尾|最后|后面)(?:追加|添加|加上|"
     rf"写上?)\s*[:：]?\s*"
     rf"(?P<content>.+)$", "append"),
    (rf"(?:在|往|向)\s*{_ZH_PATH}\s*(?:文件)?(?:里面?|中|"
     rf"内)?追加\s*[:：]?\s*(?P<content>.+)$", "append"),
    (rf"(?:在|往|向)\s*{_ZH_PATH}\s*(?:文件)?(?:里面?|中|内)?写(?:入|"
     rf"上)?\s*[:：]?\s*(?P<content>.+)$", "write"),
    (rf"写入\s*{_ZH_PATH}\s*[:：]\s*(?P<content>.+)$", "write"),
)  # fmt: skip

# Rules that begin with free text and end in a path.
CARRYING: tuple[tuple[str, str], ...] = (
    (rf"(?:append|add)\s+(?P<content>.+)\s+to\s+"
     rf"(?:the\s+end\s+of\s+)?{_FILE}{_PATH}{_END}", "append"),
    (rf"(?:把|将)\s*(?P<content>.+?)\s*(?:追加到|添加到|加到)\s*{_ZH_PATH}\s*(?:文件)?(?:里|中|"
     rf"的?末尾)?{_END}", "append"),
    (rf"(?:write|save|put|store)\s+(?:the\s+(?:text|words?|line)\s+)?"
     rf"(?P<content>.+)\s+(?:to|into|in|as)\s+{_FILE}{_PATH}{_END}", "write"),
    (rf"(?:把|将)\s*(?P<content>.+?)\s*(?:写入|写到|写进|保存到|存到|存入|保存为|放到|放进)\s*"
     rf"(?P<file>文件)?\s*{_ZH_PATH}\s*(?:文件)?(?:里面?|中)?{_END}", "write"),
)  # fmt: skip

# Rules that a whole sentence must fit.
CLOSED: tuple[tuple[str, str], ...] = (
    (rf"(?:send|give|share|attach)\s+(?:me\s+)?{_FILE}{_PATH}(?:\s+file)?"
     rf"(?:\s+(?:to|with|for)\s+me)?(?:\s+(?:here|again|as\s+a\s+file)){{0,2}}"
     rf"(?:,?\s+please)?{_END}", "send"),
    (rf"请?(?:把|将)\s*(?P<file>文件)?\s*{_ZH_PATH}\s*(?:文件)?(?:发送|发|传|给)(?:给|到)?"
     rf"(?:我|这里)(?:一下|吧)?{_END}", "send"),
    (rf"(?:请)?(?:发送|发|传)(?:一下)?(?:给我)?\s*(?P<file>文件)?\s*{_ZH_PATH}\s*(?:文件)?"
     rf"(?:给我)?(?:吧)?{_END}", "send"),
    (rf"(?:replace|change|swap)\s+(?P<all>all\s+|every\s+)?(?:occurrences?\s+of\s+|"
     rf"the\s+word\s+)?(?P<old>.+?)\s+(?:with|to|by|for|into)\s+"
     rf"(?P<new>.+)\s+(?:in|inside|of)\s+{_FILE}{_PATH}{_END}", "replace"),
    (rf"in\s+{_FILE}{_PATH}\s*,?\s+(?:replace|change)\s+(?P<all>all\s+|every\s+)?"
     rf"(?P<old>.+?)\s+(?:with|to|by)\s+(?P<new>.+?){_END}", "replace"),
    (rf"(?:把|将)\s*{_ZH_PATH}\s*(?:文件)?(?:里面?|中|内)?的?(?P<all>所有的?)?\s*(?P<old>\S.*?)\s*"
     rf"(?:全部)?(?:替换成|替换为|改成|改为|换成)\s*(?P<new>.+?){_END}", "replace"),
    (rf"(?:create|make|touch)\s+{_FILE}{_PATH}{_END}", "write"),
    (rf"(?:创建|新建)(?:一个|个)?(?:空)?(?P<file>文件)?\s*{_ZH_PATH}{_END}", "write"),
    (rf"(?:list|show|display|give|see)\s+(?:me\s+)?(?:all\s+)?(?:of\s+)?(?:the\s+|"
     rf"my\s+|your\s+)?(?:files?|contents?|directory|folder|folders|documents)"
     rf"(?:\s+and\s+folders)?(?:\s+(?:that\s+are\s+|there\s+are\s+)?{_IN}\s+"
     rf"(?P<where>[^\n]{{1,200}}?))?{_END}", "list"),
    (rf"(?:what|which)(?:'s|\s+is|\s+are)?\s+(?:the\s+)?(?:files?|documents)\s*"
     rf"(?:are\s+|is\s+|do\s+(?:i|you|we)\s+have\s*|exist\s*|can\s+you\s+see\s*|"
     rf"there\s*|available\s*|present\s*){{0,4}}(?:{_IN}\s+"
     rf"(?P<where>[^\n]{{1,200}}?))?{_END}", "list"),
    (rf"what(?:'s|\s+is)\s+{_IN}\s+(?:the\s+|my\s+|your\s+)?(?P<where>(?:(?:folder|"
     rf"directory)\s+)?[\w./-]{{1,100}}(?:\s+(?:folder|directory))|workspace|"
     rf"(?:folder|directory)\s+[\w./-]{{1,100}}){_END}", "list"),
    (rf"(?:are\s+there\s+)any\s+files(?:\s+{_IN}\s+(?P<where>[^\n]{{1,200}}?))?{_END}", "list"),
    (rf"(?:ls|dir|list)(?:\s+(?P<where>[\w./~-]{{1,200}}(?:\s+(?:folder|"
     rf"directory))?))?{_END}", "list"),
    (rf"(?:请)?(?:列出|列一下|看看|显示|"
     rf"查看)(?:一下)?\s*(?P<where>[^\s的里中下，。]{{0,200}}?)\s*(?:目录|"
     rf"文件夹)?(?:里面?|中|下面?|内)?的?(?:所有|全部)?的?(?:文件列表|文件|目录){_END}", "list"),
    (rf"(?P<where>[^\s的里中下，。有]{{0,200}}?)\s*(?:目录|文件夹)?(?:里面?|中|下面?|"
     rf"内)?(?:都)?有(?:哪些|"
     rf"什么)文件{_END}", "list"),
    (rf"(?P<where>[\w./-]{{1,200}}?)\s*(?:目录|文件夹)(?:里面?|中|下面?|内)?(?:都)?有(?:哪些|什么)"
     rf"(?:东西)?{_END}", "list"),
    (rf"(?:find|list|show|locate|search\s+for)\s+(?:me\s+)?(?:all\s+)?"
     rf"(?:the\s+)?files?\s+(?:(?:that\s+are\s+)?(?:named|called|matching|like|"
     rf"ending\s+(?:in|with))\s+)(?P<name>\S{{1,200}})"
     rf"(?:\s+{_IN}\s+(?P<where>[^\n]{{1,200}}?))?{_END}", "find"),
    (rf"(?:find|locate)\s+(?:me\s+)?(?:all\s+)?(?:the\s+)?"
     rf"(?P<name>[{QUOTES}]?[\w*?./-]{{0,100}}[*.][\w*?./-]{{1,100}}[{QUOTES}]?)"
     rf"(?:\s+files?)?(?:\s+{_IN}\s+(?P<where>[^\n]{{1,200}}?))?{_END}", "find"),
    (rf"(?:list|show)\s+(?:me\s+)?(?:all\s+)?(?:the\s+)?"
     rf"(?P<name>[\w?./-]{{0,100}}\*[\w*?./-]{{0,100}}|\.[A-Za-z]\w{{0,7}})"
     rf"(?:\s+files?)?(?:\s+{_IN}\s+(?P<where>[^\n]{{1,200}}?))?{_END}", "find"),
    (rf"(?:where\s+is|find)\s+(?:the\s+)?file\s+(?P<name>\S{{1,200}}?){_END}", "find"),
    (rf"(?:查找|找|搜索|找出)(?:一下)?(?:所有|名为|叫){{0,3}}\s*(?:文件)?\s*"
     rf"(?P<name>[\w*?./-]{{0,100}}[*.][\w*?./-]{{1,100}})\s*(?:的?文件)?{_END}", "find"),
    (rf"(?:search|grep|look)\s+(?:for\s+)?(?P<text>.+?)\s+(?:{_IN})\s+(?:all\s+)?"
     rf"(?:the\s+|my\s+|your\s+)?(?:files?|documents|workspace|contents?)"
     rf"(?:\s+{_IN}\s+(?P<where>[^\n]{{1,200}}?))?{_END}", "search"),
    (rf"(?:search|grep|look)\s+(?:the\s+|my\s+|all\s+)?(?:files?|documents|"
     rf"workspace)\s+for\s+(?P<text>.+?){_END}", "search"),
    (rf"(?:search|grep)\s+(?:for\s+)?(?P<text>.+?)\s+in\s+(?:the\s+)?"
     rf"(?P<where>[\w./-]{{1,200}}(?:\s+(?:folder|directory))?){_END}", "search"),
    (rf"(?:which|what)\s+files?\s+(?:contains?|mentions?|ha(?:ve|s)|includes?)\s+"
     rf"(?:the\s+(?:words?|text)\s+)?(?P<text>.+?){_END}", "search"),
    (rf"find\s+(?:all\s+)?(?:the\s+)?(?:files?\s+(?:containing|that\s+(?:contain|"
     rf"mention)|with)\s+)(?:the\s+(?:words?|text)\s+)?(?P<text>.+?){_END}", "search"),
    (rf"find\s+(?P<text>.+?)\s+in\s+(?:the\s+|my\s+|all\s+){{0,3}}files?{_END}", "search"),
    (rf"grep\s+(?P<text>.+?){_END}", "search"),
    (rf"(?:在)?(?P<where>[\w./-]{{0,100}}?)\s*(?:文件|目录)(?:里面?|中|内)?(?:搜索|查找|搜|找)"
     rf"(?:一下)?\s*(?P<text>.+?){_END}", "search"),
    (
        rf"(?:哪些|哪个|什么)文件(?:里面?|中)?(?:包含|提到|含有|有)了?\s*(?P<text>.+?){_END}",
        "search",
    ),
    (rf"(?:read|show|open|cat|print|display|view|see|check)\s+(?:me\s+)?(?:the\s+)?"
     rf"(?:contents?\s+of\s+|what(?:'s|\s+is)\s+in\s+)?{_FILE}{_PATH}(?:\s+file)?"
     rf"(?:\s+(?:to|for)\s+me|\s+aloud|\s+again)?{_END}", "read"),
    (rf"(?:tell\s+me\s+)?what(?:'s|\s+is|\s+are)\s+(?:written\s+|the\s+contents?\s+)?"
     rf"(?:in|inside|of)\s+{_FILE}{_PATH}(?:\s+file)?{_END}", "read"),
    (rf"(?:tell\s+me\s+)?what\s+does\s+{_FILE}{_PATH}\s+(?:say|contain|"
     rf"have\s+in\s+it){_END}", "read"),
    (rf"(?:the\s+)?contents?\s+of\s+{_FILE}{_PATH}{_END}", "read"),
    (rf"(?:请)?(?:读取|读|打开|查看|看看|看|显示|念)(?:一下|"
     rf"一读)?\s*(?P<file>文件)?\s*{_ZH_PATH}\s*"
     rf"(?:文件)?(?:的?(?:内容|全文))?{_END}", "read"),
    (rf"{_ZH_PATH}\s*(?:文件)?(?:里面?|中)?(?:写了|的内容是|有|是)(?:些)?(?:什么|"
     rf"啥)(?:内容)?{_END}", "read"),
)  # fmt: skip
