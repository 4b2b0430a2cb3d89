"""Cues that a sentence is no plain statement about the subject of a fact: doubt, the past,
hearsay, jest, and other people. Pure.

A change of a known fact that rests on such a sentence waits for the person. Cues are compared
without case and accents and match the beginning of a word. One that starts with `=` matches a whole
word with its accents. In other languages than these, only names tell other people apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec import Struct

from nanobot.memory.analysis import is_stop_word, stemmed
from nanobot.memory.figures import MONTHS
from nanobot.memory.languages import ENGLISH


class _Cues(Struct, frozen=True):
    """`doubt` and `jest` and `people` are beginnings, with `=` whole words. `own` are words of the
    first person, of languages that do not leave them out."""

    doubt: str
    jest: str
    people: str
    own: str = ""


_CUES = {
    ENGLISH: _Cues(
        "=if =may might maybe perhaps would could =whether suppos imagin wonder wish pretend unsure"
        " probabl planning consider =almost nearly heard claim rumo believe"
        " translat =story =novel =poem =once =before =until =till =used former previous =child"
        " =childhood =ago",
        "kidding =joke joking =jk =wait =haha =lol nonsense",
        "mother father =mum =mom =dad parent brother sister friend neighbo colleague coworker"
        " =boss =son =sons daughter wife husband partner cousin =aunt uncle grand nephew niece"
        " client customer roommate flatmate girlfriend boyfriend =people everyone someone",
        "i im ive ill id my me mine we were weve our us",
    ),
    "german": _Cues(
        "=ob =falls =wenn vielleicht evtl eventuell konnte moglich mocht angeblich behaupt"
        " wahrscheinlich vermut uberleg wunsch stell gehort fast =beinah glaub"
        " ubersetz geschichte fruher =damals =einst ehemal =kind kindheit",
        "scherz spass =witz =quatsch =moment =haha unsinn",
        "mutter vater =mama =papa =mami eltern bruder schwester freund nachbar kolleg =chef =chefin"
        " sohn tochter =frau =mann partner cousin =tante onkel =opa =oma gross enkel neffe nichte"
        " kund",
        "ich mein meine meinen meinem meiner mir mich wir unser unsere unseren uns",
    ),
    "french": _Cues(
        "=si peut pourrai voudrai =aurais =serais suppos imagin parait reve presque"
        " probabl pretend croi traduis =avant autrefois =jadis =enfant ancien",
        "plaisant blague =rigole =attends =haha betise",
        "mere pere =maman =papa parent frere soeur =ami =amie =amis voisin collegue =chef fils"
        " fille femme mari compagn cousin tante =oncle grand neveu niece client",
        "je j mon ma mes moi me nous notre nos",
    ),
    "spanish": _Cues(
        "=si quiza =tal podria =puede gustaria suppon imagin parece sueno =casi"
        " probabl dicen creo traduc"
        " =antes antigu =niño =niña",
        "broma bromeando =espera =jaja",
        "madre padre =mama =papa hermano hermana amigo amiga vecin coleg =jefe =jefa hijo hija"
        " esposa esposo mujer marido primo prima =tia =tio abuel sobrin client companer",
    ),
    "portuguese": _Cues(
        "=se talvez poderia =pode gostaria imagin parece sonh quase provavel acho traduz =antes"
        " antig =criança",
        "brincadeira brincando =espera =haha",
        "=mãe =pai irmao irma amigo amiga vizinh coleg chefe filho filha esposa esposo mulher"
        " marido primo prima =tia =tio =avó =avô sobrin client",
    ),
    "italian": _Cues(
        "=se forse potrebb potrei vorrei magari suppon immagin =pare sogn quasi"
        " probabil credo traduc =prima"
        " =bambino =bambina",
        "scherz =aspetta =haha",
        "madre padre mamma =papa fratello sorella amico amica vicin colleg =capo figlio figlia"
        " moglie marito cugin =zia =zio nonn nipote client",
    ),
    "dutch": _Cues(
        "=als =of misschien zou zouden waarschijnlijk =stel bijna vertaal vroeger =toen =kind",
        "grapje =wacht =haha",
        "moeder vader =mama =papa ouders broer =zus vriend buur buren colleg =baas zoon dochter"
        " vrouw =man partner =neef =nicht =tante =oom =opa =oma klant",
        "ik mijn mij me wij we ons onze",
    ),
    "polish": _Cues(
        "jesli jezeli gdyby =czy moze chyba podobno prawie prawdopodob przetlumacz"
        " dawniej kiedys =dziecko =dzieckiem",
        "zart zartuje =czekaj =haha",
        "matk mama =ojciec =tata brat siostr przyjaci kolega kolezank sasiad =szef =syn cork =żona"
        " =mąż kuzyn ciotk wuj babci dziad klient",
    ),
    "russian": _Cues(
        "=если =бы =ли может возможно наверн вдруг кажется почти говорят переведи"
        " раньше =прежде когда-то детств =ребенком",
        "шучу шутка шутк =погоди =стоп =хаха",
        "мать мама мамы =отец отца папа =папы брат сестр друг подруг сосед коллег начальни =сын"
        " =сына дочь дочк жена =жены =муж =мужа тетя дядя бабушк дедушк племянни клиент",
    ),
    "turkish": _Cues(
        "eger belki galiba sanirim acaba keske neredeyse muhtemelen eskiden =çocukken",
        "=şaka =dur =haha",
        "anne =baba babam kardes abla =abi arkadas komsu =patron ogul oglum oglu kizim =kızı esim"
        " =eşi karim koca kuzen teyze =amca =hala dayi dede =nine musteri",
    ),
}
_DOUBT_RUNS = (
    "以前 从前 從前 过去 過去 小时候 小時候 昔 예전 옛날 翻译 翻譯 翻訳 如果 要是 可能 也许"
    " 也許 会不会 吗 嗎 もし かもしれ たら だろう 만약 만일 아마"
)
_JEST_RUNS = "开玩笑 開玩笑 冗談 うそ 농담"
_PEOPLE_RUNS = (
    "朋友 妈妈 媽媽 爸爸 父 母 哥 姐 弟 妹 同事 邻居 鄰居 老板 儿子 女儿 兒子 女兒 妻 老婆 丈夫"
    " 老公 友達 兄 姉 息子 娘 同僚 隣 上司 夫 친구 엄마 아빠 어머니 아버지 형 누나 동생 동료 이웃"
    " 아들 딸 아내 남편"
)
_THEY = (
    "he she his her er sein seine ihr ihre elle ils elles ella ele ela lui lei hij zij zijn haar"
    " он она его ее onun"
)
_PRONOUNS = frozenset(_THEY.split())
_HEARSAY = (
    "says said claims claimed thinks thought believes insists sagt sagte meint meinte behauptet dit"
    " pense dice dijo cree diz disse pensa zegt zei mowi говорит сказал diyor dedi"
)
_HEARSAY_WORDS = frozenset(_HEARSAY.split())
_WORD = r"[^\W\d_]+(?:['’-][^\W\d_]+)*"
_FREELY_CAPITAL = "german"
"""Its nouns are written like names."""


def is_doubtful(sentence: str, languages: Iterable[str]) -> bool:
    """Return True for a question, a supposition, a memory of the past, and hearsay."""
    cues, words = _known(languages), _words(sentence)
    if sentence.rstrip().endswith(("?", "？")) or _HEARSAY_WORDS & {*words[1:2]}:
        return True
    return _has(sentence, (one.doubt for one in cues), _DOUBT_RUNS)


def is_jest(text: str, languages: Iterable[str]) -> bool:
    """Whether a message takes itself, or the one before it, back."""
    return _has(text, (one.jest for one in _known(languages)), _JEST_RUNS)


def speaks_of_others(
    sentence: str, languages: Sequence[str], is_known: Callable[[str], bool]
) -> bool:
    """Whether a sentence, in the first of these languages, names people that are not known; a
    pronoun may be of one that is."""
    people = _people_in(sentence, languages)
    if any(map(is_known, people)):
        return not all(map(is_known, people))
    return bool(people) or not _PRONOUNS.isdisjoint(_words(sentence))


def _people_in(sentence: str, languages: Sequence[str]) -> list[str]:
    cues, words = _known(languages), _words(sentence)
    found = [word for word in words if _has(word, (one.people for one in cues), "")]
    if not sentence.isascii():
        found += [run for run in _PEOPLE_RUNS.split() if run in sentence]
    first, *rest = re.findall(_WORD, sentence) or [""]
    names = [] if _FREELY_CAPITAL in languages else rest
    own = {word for one in _known(languages[:1]) for word in one.own.split()}
    if own and not own & {*words} and first != "New":
        names = [first, *names]  # else it is the verb, or what the person does something with
    return found + [stemmed(name, "") for name in names if _may_name(name, languages)]


def _may_name(word: str, languages: Collection[str]) -> bool:
    folded = stemmed(word, "")
    if len(word) < 2 or not word[0].isupper() or folded in MONTHS or folded.endswith("day"):
        return False
    return not any(is_stop_word(part, one) for part in folded.split("'") for one in languages)


def _known(languages: Iterable[str]) -> list[_Cues]:
    return [_CUES[one] for one in dict.fromkeys(languages) if one in _CUES]


def _words(text: str) -> list[str]:
    return [stemmed(word, "") for word in re.findall(r"[^\W\d_]+", text)]


def _has(text: str, cues: Iterable[str], runs: str) -> bool:
    every = " ".join(cues).split()
    whole = {f"={word.casefold()}" for word in re.findall(r"[^\W\d_]+", text) if word != "May"}
    beginnings = tuple(cue for cue in every if cue[0] != "=")
    if not whole.isdisjoint(every) or any(word.startswith(beginnings) for word in _words(text)):
        return True
    return not text.isascii() and any(run in text for run in runs.split())
