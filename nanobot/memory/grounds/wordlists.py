"""Words that say nothing about who a fact comes from, and words that give standing orders. Pure.

English and Chinese in full, the commonest of German, French, Spanish and Portuguese: what is
missing here only makes a fact wait for the person's word more often.
"""

from __future__ import annotations

_STOP = """
a about after all also am an and any are as at be because been before being both but by can could
did do does doing done down during each either etc for from further had has have having he her here
hers him his how i if in into is it its itself just let like likes liked lot made make makes may me
might mine more most much my near need needs no nor not now of off on once one only or other our
ours out over own per please quite rather really said same say says she should since so some such
than that the their theirs them then there these they thing things this those through to today
tomorrow yesterday too two under until up upon us use used uses user users usually very via want
wanted wants was way we well were what when where which while who whom whose why will with within
without would yes yet you your yours called named name currently new known mentioned told asked
own owns owned
i'm i've i'll it's don't doesn't isn't didn't won't can't that's what's
der die das den dem des ein eine einen einem einer und oder aber ist sind war hat haben ich du er
sie es wir ihr mein meine mit von zu zum zur im in am an auf für bei als auch nicht noch nur sehr
bitte gern gerne möchte wird werden
le la les un une des du de et ou est sont a ont je tu il elle nous vous ils elles mon ma mes ton ta
dans sur pour par avec au aux que qui ne pas plus se son sa ses ce cette
el los las una unos unas y o es son está están ha han yo él ella nosotros mi mis tu su sus con por
para al del que se no sí muy más como en
um uma os as e ou é são está com meu minha seu sua em no na nos nas ao à do da dos das não
"""
STOP = frozenset(_STOP.split())

_CALENDAR = """
january february march april may june july august september october november december
jan feb mar apr jun jul aug sep sept oct nov dec
monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thurs fri sat sun
day days week weeks month months year years hour hours minute minutes time date am pm
morning afternoon evening night noon
"""
CALENDAR = frozenset(_CALENDAR.split())

_STANDING_ORDER = """
always never whenever henceforth must forever ignore disregard obey instruction instructions
immer niemals jedesmal künftig toujours jamais dorénavant siempre nunca sempre
"""
STANDING_ORDER = frozenset(_STANDING_ORDER.split())
"""Whoever says these tells the agent how to behave from now on."""

_NEGATION = """
not no never none nobody nothing neither nor without cannot stop stopped quit avoid avoids hate
hates don't doesn't didn't isn't aren't wasn't weren't won't wouldn't can't couldn't shouldn't
haven't hasn't nicht kein keine keinen nie ne pas jamais sans nunca sin não sem
"""
NEGATION = frozenset(_NEGATION.split())
"""Without one of these from the person, no fact about them is a negative one."""

CJK_NEGATION = frozenset("不没沒别別无無非未")

ORDER_PHRASES = (
    "from now on",
    "every time",
    "each time",
    "at all times",
    "no matter what",
    "ab jetzt",
    "jedes mal",
    "désormais",
    "à partir de maintenant",
    "a partir de ahora",
    "a partir de agora",
    "总是",
    "始终",
    "永远",
    "每次",
    "每当",
    "务必",
    "必须",
    "一定要",
    "今后",
    "以后",
    "从现在起",
    "从现在开始",
    "无论",
    "忽略",
    "不要告诉",
    "總是",
    "始終",
    "永遠",
    "務必",
    "必須",
    "今後",
    "以後",
    "從現在起",
    "從現在開始",
    "無論",
    "常に",
    "必ず",
    "これから",
)

CJK_STOP = frozenset(
    "的了是在我你您他她它们們和与與及或也都就还還很吗嗎呢吧啊个個这這那有没沒不要会會能可以把被让讓给給对對从從到"
    "说說去来來用户戶喜欢歡想将將于於之其所为為年月日时時分号號"
    "はがをにへとでもやのかねよだですますたてしるれ"
)
"""Characters that alone say little: a pair of which both are among these is no content."""
