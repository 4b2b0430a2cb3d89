"""How people say things: the patterns by which `understand` tells sentences apart.

Every pattern is anchored at one end, and no repetition stands inside another one.
"""

from __future__ import annotations

import re

POLITE = re.compile(
    r"(?:(?:hey|hi|hello|ok(?:ay)?|so(?! you know)|also|and|but|actually|btw|by the way|nanobot|"
    r"please|pls|kindly|just(?! so)|fyi|for your information|one more thing)"
    r"\b[,!:.]?\s+(?=\S)|"
    # Without a comma these are words of the statement: "no meetings", "first aid".
    r"(?:well|oh|no|no wait|wait|correction|sorry|i meant?|"
    r"yes|then|now|next|finally|first|first of all|great|thanks|right)[,!:.]\s+"
    r"(?=\S)|"
    r"(?:can|could|would|will) you (?:please |kindly )?(?=\w)|"
    r"i(?:'d| would) like you to |i want you to |i need you to |let's |"
    r"you (?:should|must|need to|have to) |you there[?,] |@\w+ |"
    r"(?:你好|您好|嗨|哈喽|对了|另外|顺便(?:说一下)?|还有|那么|其实|请问|麻烦你?|能不能|能否|"
    r"可以|可不可以|你能|你可以)[，,！!]?\s*"
    r"(?=.{3}))",
    re.IGNORECASE,
)
REMEMBER = re.compile(
    r"(?:(?:always |do |to )?(?:remember|memori[sz]e|keep in mind|bear in mind|"
    r"keep in memory|learn (?=that\b)|"
    r"(?:make sure (?:that )?you )remember|make sure to remember|"
    r"(?:do not|don't|never|dont) (?:ever )?forget|note for (?:the |your )?(?:future|"
    r"later)(?: reference)?|"
    r"for (?:the |your |future )?(?:future|record|reference|later)(?: reference| use)?|"
    r"(?:make|take) a mental note|mental note|just so you know|so you know|know that|"
    r"take into account|"
    r"(?:save|store|put|add|keep|write|record) (?:this |that |it |the following )?(?:"
    r"(?:in|to|into) )?"
    r"(?:your |the |long-term |my )?memory|"
    r"(?:save|store|record) (?:the fact|this fact|for later|this|(?=that\b))|"
    r"(?:it would be|i would|i'd|would be|i want|i need|make sure|be sure|try)\b[^.?!]{0,60}?"
    r"\bremember(?:ed|s)?)"
    r"(?P<end>\b[\s,:;–-]*(?:(?:that|this|the following|these(?: facts| things)?|the fact that|it|"
    r"for me)\b[\s,:–-]*)?))",
    re.IGNORECASE,
)
REMEMBER_ZH = re.compile(
    r"(?:请|麻烦|帮我|你|要|一定|务必|千万|得|给我|替我){0,4}?"
    r"(?:记住了?|记得|牢记|记着|记在心里|别忘记?了?|不要忘记?了?|不要忘了|勿忘|保存到记忆|"
    r"存到记忆|以后请?注意|供以后参考)"
    r"(?:一下|这个|这点|这一点|以下|(?:这|一)件事|下面的话)?\s*[:：，,]?\s*"
)
TAIL = re.compile(
    r"(?:[\s,;.!–-]+(?:so |and |please |also |just |can you |could you |you should |"
    r"i want you to ){0,4}?"
    r"(?:(?:please )?(?:remember|memori[sz]e|keep|bear|save|store|record|note|"
    r"(?:don't|do not|never) forget|"
    r"make a (?:mental )?note of)(?: (?:that|this|it|about it|about that))(?: down|"
    r" in mind| in memory| to memory)?"
    r"|(?:please )?(?:remember|don't forget)|for (?:future reference|the record|"
    r"the future|later|your information)|fyi)"
    r"(?: for me| for later| for (?:the )?(?:future|next time)| please| ok(?:ay)?|"
    r" thanks| will you| would you){0,4}?[\s.!?]*$)",
    re.IGNORECASE,
)
TAIL_ZH = re.compile(
    r"[，,。；\s]*(?:请|你|要|一定|帮我|麻烦|千万|务必|给我){0,4}?(?:记住|记得|牢记|记着|"
    r"记一下|记下来?|别忘记?|不要忘记?)"
    r"(?:了|它|这个|这点|这一点|这件事|一下|哦|啊|吧|喔|呀|好吗){0,4}?[。！!.？?]*$"
)
THAT = re.compile(
    r"(?:remember|memori[sz]e|save|store|keep|don't forget|do not forget|note)(?: "
    r"(?:that|this|it))?"
    r"(?: in mind| down| to memory| in memory)?(?:,? (?:please|for me|for later))?[.!?]*$",
    re.IGNORECASE,
)
FORGET = re.compile(
    r"(?:please )?(?:forget|(?:delete|remove|erase) (?=(?:the fact |from (?:your )?memory |that |"
    r"about )|(?:my|i|i'm|our|we)\b|.{2,300}from (?:your )?memory))"
    r" ?(?:the fact |from (?:your )?memory )?(?:that |about )?"
    r"(?P<about>(?!(?:about )?(?:it|that|this)\b[.! ]*$)"
    r"\w.{1,300}?)(?: from (?:your )?memory)?[.!]*$"
    r"|(?:(?:请|帮我|把){0,2}(?:忘掉|删除记忆)[：:，, ]?|请你?(?:忘了|忘记)|(?:忘了|忘记)(?=我))"
    r"(?P<zh>.{1,200}?)[。！吧]*$",
    re.IGNORECASE,
)
FORGET_ALL = re.compile(
    r"(?:everything|all|all of it|it all|all (?:the )?(?:facts|things)|all your memor(?:y|ies)|"
    r"(?:everything|all)(?: that)? (?:you (?:know|remember|learn\w+)|i (?:said|told you))"
    r"(?: about me)?|everything about me|一切|所有(?:的)?(?:事情?|记忆|内容)?|全部(?:记忆|内容)?|"
    r"关于我的一切)$",
    re.IGNORECASE,
)
SAID = {
    "last": re.compile(
        r"(?:what(?:'s| is| was) (?:the )?(?:last|previous) (?:thing|message) (?:that )?(?:i "
        r"(?:said|wrote|sent|told you)|of mine)|what (?:was|is) my (?:last|previous) (?:message|"
        r"question)|what (?:did|have) i (?:just )?(?:say|said|write|ask|tell you)"
        r"(?: (?:just now|before|last|a (?:moment|minute) ago|to you))?|repeat what i (?:just )?"
        r"said)[?.! ]*$"
        r"|我(?:刚才|刚刚|刚|上一?句|前面|之前)(?:都)?(?:说|问|讲|写)(?:了|过|的是?)?(?:些)?什么[？?。]*$"
        r"|我的?(?:上一?|最后一)(?:句话|条消息)(?:是|说了?)什么[？?。]*$",
        re.IGNORECASE,
    ),
    "first": re.compile(
        r"(?:what (?:was|is) (?:my first|the first) (?:message|thing|question|sentence)"
        r"(?: (?:that )?(?:i (?:said|wrote|sent|asked|told you)|of mine))?(?: to you| today)?|"
        r"what did i (?:say|write|ask|tell you) first)[?.! ]*$"
        r"|我的?(?:第一|最开始的?一)(?:句话?|条消息|个问题)(?:是|说了?|问了?)(?:什么)[？?。]*$"
        r"|我(?:最先|一开始|最开始)(?:说|问|讲)(?:了|的是)?什么[？?。]*$",
        re.IGNORECASE,
    ),
    "all": re.compile(
        r"(?:what (?:did|have|were) (?:we|i) (?:talk(?:ed|ing)?|discuss(?:ed|ing)?|chat(?:ted)?|"
        r"been talking|speak)(?: about)?(?: (?:so far|today|just now|before|here))?|"
        r"(?:summari[sz]e|recap|sum up) (?:our |this |the )?(?:conversation|chat|talk|discussion)"
        r"(?: so far)?|what(?:'s| is| was) (?:this|our) (?:conversation|chat) about)[?.! ]*$"
        r"|我们?(?:刚才|今天|之前|都)*(?:聊|谈|说)(?:了|过)?(?:些|哪些)?什么[？?。]*$"
        r"|(?:请|帮我)?(?:总结|概括|回顾)(?:一下)?(?:我们的?|这次|这段|刚才的?)*(?:对话|聊天|谈话)(?:内容)?[。？?]*$",
        re.IGNORECASE,
    ),
}
RECITE = re.compile(
    r"(?:what|which things?) (?:all )?(?:do|did|have) you (?:know|remember|learn"
    r"(?:ed)?|stored?|saved?|noted?)"
    r"(?: (?:about|of) me| so far| in (?:your )?memory| all){0,4}?[?.! ]*$"
    r"|tell me (?:everything |all |what )?(?:that )?(?:you (?:know|remember) )?about "
    r"(?:me|myself)[?.! ]*$"
    r"|(?:show|list|recite)(?: me)? (?:your |my |the |all |everything )?(?:memory|"
    r"memories|facts)[?.! ]*$|who am i[?.! ]*$"
    r"|(?:what is|what's) in your memory[?.! ]*$"
    r"|你(?:都)?(?:知道|记得|记住了?|了解)(?:关于)?我?(?:的)?(?:什么|哪些|"
    r"哪些事)(?:事情?)?(?:关于我)?[？?。]*$"
    r"|你(?:对我)?(?:了解|知道)(?:我)?(?:多少|什么)[？?。]*$|我是谁[？?。]*$",
    re.IGNORECASE,
)
NOTES = re.compile(
    r"(?:what(?:'s| is| are)|show(?: me)?|list|read(?: me)?|tell me)(?: in)? (?:my |"
    r"the |today's |all ){0,4}?notes?"
    r"(?: (?:for |of |from )?today)?[?.! ]*$|what did i (?:note|write down)(?: today)?[?.! ]*$"
    r"|(?:看看|显示|查看|列出)?(?:我)?(?:今天)?的?(?:笔记|备忘)(?:有哪些|是什么|有什么)?[？?。]*$"
    r"|我?今天记了(?:些)?什么[？?。]*$",
    re.IGNORECASE,
)
TIME = re.compile(
    r"(?:what(?:'s| is) the (?:current |exact )?(?:time|date)|what time (?:is it|"
    r"do you have|it is)|"
    r"(?:do you )?(?:know|have|got) (?:what )?(?:the )?time(?: it is| is it)?|"
    r"what (?:day|date|year|month|weekday|day of the week)(?: of the (?:week|month))? "
    r"(?:is it|is today|it is|do we have)|"
    r"what(?:'s| is) (?:today|the day|today's date|the (?:day|date) today|"
    r"the day today|today's day)|"
    r"which day is (?:it|today)|how late is it|tell me (?:the|what) (?:current )?"
    r"(?:time|date)(?: it is)?|(?:current )?(?:time|date)|"
    r"is it (?:morning|afternoon|evening|night|late))(?: now| today| right now| here|"
    r" please)?[?.! ]*$"
    r"|(?:请问|请告诉我|告诉我)?(?:现在|今天|当前)?(?:是)?(?:几点了?|什么时间|几点钟|几号|"
    r"星期几|周几|礼拜几|什么日期|几月几[日号]|时间|日期)"
    r"(?:是什么|是多少|了)?[？?。啊呢]*$",
    re.IGNORECASE,
)
HELP = re.compile(
    r"(?:help(?: me)?(?: please)?|what can (?:you|i) do(?: .{0,20})?|what (?:are|"
    r"can) you(?: able to do| help .{0,20})?|"
    r"who are you|what(?:'s| is) your name|what do you do|how (?:do|can|should) i use "
    r"(?:you|this|nanobot)|"
    r"how do(?:es)? (?:you|this) work|introduce yourself|are you (?:an? )?(?:ai|bot|"
    r"robot|human|llm|real|chatgpt|model|offline|online).{0,20}|"
    r"(?:what|which) (?:ai |language )?(?:model|llm|ai) (?:are you|do you use|is this|"
    r"am i .{0,20}|do you run)|how (?:do|can) i (?:connect|set up|configure|add|"
    r"use) .{0,30}model|"
    r"your (?:features|abilities|capabilities|commands)|commands|what are your .{2,20})[?.! ]*$"
    r"|(?:你)?(?:能|可以|会)(?:做|干|帮我做|帮我干)(?:什么|啥|些什么|哪些事)[？?。呢]*$|"
    r"你(?:是谁|叫什么(?:名字)?|是什么|"
    r"有什么功能|是机器人吗|是什么模型|是哪个模型|用的什么模型|怎么用)[？?。]*$|帮助$|使用帮助$|功能$|"
    r"(?:怎么|如何)(?:连接|配置|设置|使用).{0,10}模型[？?。]*$",
    re.IGNORECASE,
)
COURTESY = {
    "greeting": re.compile(
        r"(?:hi|hello|hey|howdy|yo|greetings|good (?:morning|afternoon|evening|day)|"
        r"hiya|sup|what's up|"
        r"how are you(?: doing)?(?: today)?|how's it going|你好|您好|嗨|哈喽|早上好|早安|早|"
        r"下午好|晚上好|你好吗)"
        r"(?: there| nanobot| again| everyone|啊|呀)?[\s,.!?！？。～~]*$",
        re.IGNORECASE,
    ),
    "thanks": re.compile(
        r"(?:(?:ok|okay|great|perfect|cool|nice)[,!. ]+)?(?:thanks?(?: you)?(?: (?:so|"
        r"very) much| a lot)?|thx|ty|cheers|"
        r"(?:much )?appreciated|谢谢(?:你|您|啦|了)?|多谢|感谢|辛苦了)(?: nanobot| again|"
        r" for .{1,40})?[\s,.!！。～~]*$",
        re.IGNORECASE,
    ),
    "farewell": re.compile(
        r"(?:bye(?: bye)?|goodbye|see you(?: later| soon| tomorrow)?|good ?night|cya|"
        r"later|再见|拜拜|晚安|回头见)[\s,.!！。～~]*$",
        re.IGNORECASE,
    ),
    "agreed": re.compile(
        r"(?:ok(?:ay)?|sure|fine|great|cool|nice|perfect|good|yes|yep|yeah|no|nope|"
        r"alright|all right|got it|right|never mind|"
        r"好的?|嗯|可以|行|是的?|不|没事|知道了|明白了?|收到)[\s,.!！。～~]*$",
        re.IGNORECASE,
    ),
}
FAVOUR = re.compile(r"(?:can|could|would|will) you\b", re.IGNORECASE)
MY_NAME = re.compile(r"^(my name)'s ", re.IGNORECASE)
# "I'm Ana" names; "I'm German" does not.
I_AM_NAME = re.compile(
    r"^(?:I'm|I am|i'm|i am) (?![A-Z][a-z]*(?:ish|ese|ian|ean|can|man|ch|ss|ai|aqi)\b)"
    r"([A-Z][a-z]+)$"
)
QUESTION = re.compile(
    r"(?:who|whom|whose|what|where|which|why|how)\b(?! a\b)|when\b(?! (?:i|we|my|you|"
    r"he|she|they|it)\b)|"
    r"(?:do|does|did|is|are|was|were|am|can|could|will|would|should|shall|may|have|"
    r"has|had)(?:n't)? "
    r"(?:i|you|we|he|she|it|they|my|our|your|the|a|an|there|this|that|these|those|any|[A-Z])|"
    r"(?:remind me|tell me|say|i (?:forgot|forget|can't (?:remember|recall)|don't "
    r"(?:remember|recall|know)))"
    r" (?:who|whose|what|where|when|which|why|how|my|the|about|of|again|if|whether)\b|any idea\b|"
    r"(?:what|who|where|when|how)'?s\b|in (?:which|what)\b|(?:on|at|to|for|with|from) "
    r"(?:which|what|whom)\b",
    re.IGNORECASE,
)
QUESTION_ZH = re.compile(
    r"[？?]\s*$|(?:吗|呢|么)[。！]?$|什么|谁|哪(?!怕)|啥|多少|怎么|为什么|为何|"
    r"几[点号岁个月]|何时|何处|"
    r"是不是|有没有|多大|会不会|能不能|喜不喜欢|还记得"
)
WH = re.compile(r"(?:who|whose|what|where|when|which|why|how|if|whether)\b", re.IGNORECASE)
THEN = re.compile(
    r"[.;,]?\s+and then,?\s+|[.;,]\s*then,?\s+|[，,；。]?\s*(?:然后|接着|之后再?)\s*[，,]?\s*",
    re.IGNORECASE,
)
IT = re.compile(
    r"\b(?:it|that file|the file|this file)(?: back| again| out)?(?=[\s.!?]*$|"
    r"\s+to\s+me)|(?:它|这个文件|该文件)",
    re.IGNORECASE,
)
CHANGED = re.compile(
    r"\b(?:is|are|am|i'm|live|work|park)\s+now\b|\bnow\s+(?:live|work|park)|\snow$", re.IGNORECASE
)
CORRECTED = re.compile(
    r"(?:actually|no|sorry|correction|wait|i mean)\b.{0,20}?\b(?:it|he|she|they)"
    r"(?:'s| is|'re| are)\s+(?P<value>\S.{0,200})$",
    re.IGNORECASE,
)
TOPIC = re.compile(r"(?:remember (?:that )?)?(?P<key>(?:my|our|the) .{1,60}? (?:is|are))\s", re.I)
# "… and he is 7": the clause goes on about what the first one began with.
GOES_ON = re.compile(
    r"^(?P<key>(?:my|our) [^,;.]{1,60}?) (?P<first>(?:is|are|was|has|lives?|works?|likes?|loves?) "
    r"[^;]{1,200}?),? and (?:he|she|it|they)(?P<verb>'s| is| are| was| has| lives?| works?|"
    r" likes?| loves?| studies| plays?) (?P<then>.{1,200})$",
    re.IGNORECASE,
)
NEXT_FACT = re.compile(
    r"(?:,?\s+and|,|;|,?\s+but)\s+(?:also\s+)?(?:that\s+)?(?=(?:my|i|i'm|i've|our|"
    r"we)\b)|[，,；]\s*(?:而且|并且)?(?=我)",
    re.IGNORECASE,
)
