"""Words that change a statement, by the languages that search knows: negations, endings ("sold",
"no longer"), changes ("now", "instead"), months and small numbers.

All are compared without case and accents. A negation is a whole word. Endings and changes of more
than three letters, and months, are beginnings of words, since these are inflected. In scripts
without spaces a run of characters is enough. `/` separates forms of one word.
"""

from __future__ import annotations

from msgspec import Struct

from nanobot.memory.languages import ENGLISH


class Claims(Struct, frozen=True):
    """`numbers` are the words for 1 to 12, then 20, 30 and so on to 100."""

    no: str = ""
    over: str = ""
    now: str = ""
    months: str = ""
    numbers: str = ""


CLAIMS = {
    ENGLISH: Claims(
        "not no never none nobody nothing neither nor without cannot cant dont doesnt didnt isnt"
        " arent wasnt werent wont wouldnt shouldnt couldnt havent hasnt hadnt aint hardly barely"
        " scarcely non",
        "anymore longer stopped quit left sold ended finished done cancel over died"
        " gave former resign retired broke divorced",
        "now nowadays instead chang move moved moving switch becam since today rather actually"
        " correct reschedul postpon turn renam replac updat anymore longer",
        "jan feb mar apr may jun jul aug sep oct nov dec",
        "one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty"
        " sixty seventy eighty ninety hundred",
    ),
    "german": Claims(
        "nicht nichts nie niemals kein keine keinen keinem keiner keines ohne niemand weder kaum"
        " nirgends",
        "mehr aufgehort gekundigt verkauft beendet fertig erledigt abgesagt vorbei "
        " gestorben ehemalig verlassen geschieden verloren",
        "jetzt nun statt stattdessen neu geandert umgezogen gewechselt seit heute doch verschoben"
        " inzwischen mittlerweile ab ziehe gezogen eigentlich",
        "jan feb mar apr mai jun jul aug sep okt nov dez",
        "eins/ein/eine/einen zwei drei vier funf sechs sieben acht neun zehn elf zwolf zwanzig"
        " dreissig vierzig funfzig sechzig siebzig achtzig neunzig hundert",
    ),
    "dutch": Claims(
        "niet geen nooit niets niemand zonder nergens noch",
        "meer gestopt verkocht klaar afgelopen geannuleerd voorbij overleden weg ontslag verloren",
        "nu nieuw plaats sinds veranderd verhuisd gewisseld vandaag tegenwoordig"
        " verplaatst voortaan",
        "jan feb maa/mrt apr mei jun jul aug sep okt nov dec",
        "een twee drie vier vijf zes zeven acht negen tien elf twaalf twintig dertig"
        " veertig vijftig"
        " zestig zeventig tachtig negentig honderd",
    ),
    "swedish": Claims(
        "inte ej icke aldrig ingen inget inga ingenting utan varken",
        "langre slutat salt klar avslutad installd over dog lamnat forlorat",
        "nu ny istallet andrat flyttat bytt sedan idag numera",
        "jan feb mar apr maj jun jul aug sep okt nov dec",
        "ett/en tva tre fyra fem sex sju atta nio tio elva tolv tjugo trettio fyrtio femtio sextio"
        " sjuttio attio nittio hundra",
    ),
    "danish": Claims(
        "ikke ej aldrig ingen intet ingenting uden hverken",
        "laengere stoppet solgt faerdig afsluttet aflyst forbi dod forladt mistet",
        "nu ny istedet stedet aendret flyttet skiftet siden idag",
        "jan feb mar apr maj jun jul aug sep okt nov dec",
        "en/et to tre fire fem seks syv otte ni ti elleve tolv tyve tredive fyrre halvtreds tres"
        " halvfjerds firs halvfems hundrede",
    ),
    "norwegian": Claims(
        "ikke ei aldri ingen intet ingenting uten verken",
        "lenger sluttet solgt ferdig avsluttet avlyst over dod forlatt mistet",
        "na ny istedet stedet endret flyttet byttet siden idag",
        "jan feb mar apr mai jun jul aug sep okt nov des",
        "en/et to tre fire fem seks sju/syv atte ni ti elleve tolv tjue tretti forti femti seksti"
        " sytti atti nitti hundre",
    ),
    "spanish": Claims(
        "no nunca jamas nada nadie ningun ninguna ninguno sin tampoco ni",
        "deje dejado dejo vendi termin acab cancel murio ex perdi ya",
        "ahora nuev cambi mud desde hoy vez aplaz",
        "ene feb mar abr may jun jul ago sep/set oct nov dic",
        "uno/un/una dos tres cuatro cinco seis siete ocho nueve diez once doce veinte treinta"
        " cuarenta cincuenta sesenta setenta ochenta noventa cien/ciento",
    ),
    "portuguese": Claims(
        "nao nunca jamais nada ninguem nenhum nenhuma sem nem tampouco",
        "mais deixei deixou larguei vendi termin acab cancel morreu ex perdi sai",
        "agora novo nova mudei mudou desde hoje vez troquei adiad",
        "jan fev mar abr mai jun jul ago set out nov dez",
        "um/uma dois/duas tres quatro cinco seis sete oito nove dez onze doze vinte trinta quarenta"
        " cinquenta sessenta setenta oitenta noventa cem/cento",
    ),
    "italian": Claims(
        "non no mai niente nulla nessuno nessuna nessun senza ne neanche nemmeno neppure",
        "piu smesso lasciato venduto finit terminat annullat mort ex perso",
        "ora adesso nuov cambiat trasferit spostat da oggi invece",
        "gen feb mar apr mag giu lug ago set ott nov dic",
        "uno/un/una due tre quattro cinque sei sette otto nove dieci undici dodici venti trenta"
        " quaranta cinquanta sessanta settanta ottanta novanta cento",
    ),
    "french": Claims(
        "ne n pas non jamais rien personne aucun aucune sans ni nul",
        "plus arrete quitte vendu termin fini annule mort ancien perdu",
        "maintenant nouveau nouvel change demenag deplac depuis aujourd desormais plutot place",
        "janv fev mars avr mai juin juil aou sep oct nov dec",
        "un/une deux trois quatre cinq six sept huit neuf dix onze douze vingt trente quarante"
        " cinquante soixante - quatre-vingt - cent",
    ),
    "catalan": Claims(
        "no mai res ningu cap sense ni tampoc pas",
        "deixat venut acabat cancel mort ex perdut ja",
        "ara nou nova canviat mudat des avui lloc",
        "gen feb mar abr mai jun jul ago set oct nov des",
        "un/una dos/dues tres quatre cinc sis set vuit nou deu onze dotze vint trenta quaranta"
        " cinquanta seixanta setanta vuitanta noranta cent",
    ),
    "romanian": Claims(
        "nu niciodata nimic nimeni niciun nicio fara nici n",
        "mai renuntat vandut terminat anulat murit fost pierdut plecat",
        "acum nou noua schimbat mutat de azi loc",
        "ian feb mar apr mai iun iul aug sep oct noi dec",
        "unu/un/o doi/doua trei patru cinci sase sapte opt noua zece unsprezece"
        " doisprezece douazeci"
        " treizeci patruzeci cincizeci saizeci saptezeci optzeci nouazeci suta",
    ),
    "polish": Claims(
        "nie nigdy nic nikt zaden zadna zadne bez ani",
        "juz przestal rzucil sprzeda skonczy odwol zmarl byl stracil odszed",
        "teraz nowy nowa nowe zmieni przeprowadzi przenios od dzis zamiast",
        "sty lut mar kwi maj/maja cze lip sie wrz paz lis gru",
        "jeden/jedna dwa/dwie trzy cztery piec szesc siedem osiem dziewiec dziesiec jedenascie"
        " dwanascie dwadziescia trzydziesci czterdziesci piecdziesiat szescdziesiat siedemdziesiat"
        " osiemdziesiat dziewiecdziesiat sto",
    ),
    "czech": Claims(
        "ne neni nejsem nemam nikdy nic nikdo zadny zadna bez ani nemame nema nejsme nechci",
        "uz prestal prodal skoncil zrusil zemrel byvaly ztratil odesel",
        "ted nyni novy nova zmenil prestehoval presunul od dnes misto",
        "led uno bre dub kve cerven/cervna cervenec/cervence srp zar rij lis pro",
        "jeden/jedna dva/dve tri ctyri pet sest sedm osm devet deset jedenact dvanact dvacet tricet"
        " ctyricet padesat sedesat sedmdesat osmdesat devadesat sto",
    ),
    "slovak": Claims(
        "nie neni nikdy nic nikto ziadny ziadna bez ani nemam nema nemame nechcem",
        "uz prestal predal skoncil zrusil zomrel byvaly stratil odisiel",
        "teraz novy nova zmenil prestahoval presunul od dnes namiesto",
        "jan feb mar apr maj jun jul aug sep okt nov dec",
        "jeden/jedna dva/dve tri styri pat sest sedem osem devat desat jedenast dvanast dvadsat"
        " tridsat styridsat patdesiat sestdesiat sedemdesiat osemdesiat devatdesiat sto",
    ),
    "serbian": Claims(
        "ne nije nisam nema nikad nista niko bez ni nemam не није нисам нема никад ништа"
        " нико без ни",
        "vise prestao prodao zavrsio otkazan umro bivsi izgubio више престао продао",
        "sada nov promenio preselio od danas umesto сада нов променио преселио од",
        "jan/јан feb/феб mar/мар apr/апр maj/мај jun/јун jul/јул avg/авг sep/сеп okt/окт nov/нов"
        " dec/дец",
        "jedan/један dva/два tri/три cetiri/четири pet/пет sest/шест sedam/седам osam/осам"
        " devet/девет deset/десет jedanaest/једанаест dvanaest/дванаест",
    ),
    "russian": Claims(
        "не нет никогда ничего никто без ни нету нельзя нисколько",
        "больше перестал бросил продал закончи отмен умер бывш потерял ушел уволил",
        "теперь сейчас новый новая новое вместо измен переех перенес с сменил",
        "янв фев мар апр май/мая июн июл авг сен окт ноя дек",
        "один/одна/одно два/две три четыре пять шесть семь восемь девять десять одиннадцать"
        " двенадцать двадцать тридцать сорок пятьдесят шестьдесят семьдесят восемьдесят девяносто"
        " сто",
    ),
    "ukrainian": Claims(
        "не ні немає ніколи нічого ніхто без ані нема",
        "більше перестав кинув продав закінчи скасов помер колишн втратив пішов",
        "тепер зараз новий нова замість зміни переїх перен з сьогодні",
        "січ лют бер кві тра чер лип сер вер жов лис гру",
        "один/одна два/дві три чотири п'ять шість сім вісім дев'ять десять одинадцять дванадцять"
        " двадцять тридцять сорок п'ятдесят шістдесят сімдесят вісімдесят дев'яносто сто",
    ),
    "bulgarian": Claims(
        "не няма никога нищо никой без нито нямам",
        "вече спрях спря продад завърши отмен почина бивш загуби напусна",
        "сега нов нова вместо промени премести от днес",
        "яну фев мар апр май юни юли авг сеп окт ное дек",
        "един/една две/два три четири пет шест седем осем девет десет единадесет"
        " дванадесет двадесет"
        " тридесет четиридесет петдесет шестдесет седемдесет осемдесет деветдесет сто",
    ),
    "greek": Claims(
        "δεν μη μην οχι ποτε τιποτα κανεις κανενα καμια χωρις ουτε",
        "πια πλεον σταματησ πουλησ τελειωσ ακυρ πεθαν πρωην εχασ εφυγ",
        "τωρα νεο νεα αντι αλλαξ μετακομισ απο σημερα",
        "ιαν φεβ μαρ απρ μαι ιουν ιουλ αυγ σεπ οκτ νοε δεκ",
        "ενα/ενας/μια δυο τρια/τρεις τεσσερα/τεσσερις πεντε εξι εφτα/επτα οχτω/οκτω"
        " εννια/εννεα δεκα"
        " εντεκα δωδεκα εικοσι τριαντα σαραντα πενηντα εξηντα εβδομηντα ογδοντα ενενηντα εκατο",
    ),
    "turkish": Claims(
        "degil yok hic asla hayir ne olmadan degilim yoktur",
        "artik birak satti bitti iptal oldu eski kaybet ayril",
        "simdi yeni yerine degis tasin beri bugun artik",
        "oca sub mar nis may haz tem agu eyl eki kas ara",
        "bir iki uc dort bes alti yedi sekiz dokuz on onbir oniki yirmi otuz kirk elli"
        " altmis yetmis"
        " seksen doksan yuz",
    ),
    "finnish": Claims(
        "ei en et emme ette eivat ala ilman koskaan mitaan kukaan eika",
        "enaa lopet myi valmis peru kuoli entinen menet eros",
        "nyt uusi uuden sijaan muutt vaihto alkaen nykyaan",
        "tammi helmi maalis huhti touko kesa heina elo syys loka marras joulu",
        "yksi kaksi kolme nelja viisi kuusi seitseman kahdeksan yhdeksan kymmenen yksitoista"
        " kaksitoista",
    ),
    "estonian": Claims(
        "ei ega ilma mitte kunagi midagi keegi pole ara",
        "enam lopet muus valmis tuhist suri endine kaotas lahku",
        "nuud uus uue asemel muutis kolis vahetas alates",
        "jaan veeb mar apr mai juun juul aug sep okt nov det",
        "uks kaks kolm neli viis kuus seitse kaheksa uheksa kumme uksteist kaksteist",
    ),
    "hungarian": Claims(
        "nem ne nincs nincsenek soha semmi senki nelkul sem se nincsen",
        "mar tobbe abbahagy elad befejez lemond meghalt volt elvesz",
        "most uj helyett valt koltoz ota mostantol ma",
        "jan feb mar apr maj jun jul aug szep okt nov dec",
        "egy ketto/ket harom negy ot hat het nyolc kilenc tiz tizenegy tizenketto husz harminc"
        " negyven otven hatvan hetven nyolcvan kilencven szaz",
    ),
    "lithuanian": Claims(
        "ne nera niekada nieko niekas nei neturiu neturi nesu",
        "nebe meciau pardav baig atsauk mire buves prarad isejo",
        "dabar nauj vietoj pakeit persikel nuo siandien",
        "sau vas kov bal geg bir lie rugpj rugs spal lap gruo",
        "vienas/viena du/dvi trys keturi penki sesi septyni astuoni devyni desimt"
        " vienuolika dvylika",
    ),
    "indonesian": Claims(
        "tidak bukan belum tak jangan tanpa tiada nggak gak",
        "lagi berhenti jual selesai batal meninggal mantan hilang keluar",
        "sekarang baru ganti pindah sejak ubah kini",
        "jan feb mar apr mei jun jul agu sep okt nov des",
        "satu dua tiga empat lima enam tujuh delapan sembilan sepuluh sebelas duabelas",
    ),
    "vietnamese": Claims(
        "khong chua chang dung",
        "nghi bo ban xong huy mat cu",
        "gio moi thay doi chuyen tu nay",
        "",
        "mot hai ba bon nam sau bay tam chin muoi",
    ),
    "arabic": Claims(
        "لا لم لن ليس ليست لست ما غير بدون بلا أبدا ابدا لسنا",
        "توقف ترك باع انته ألغ الغ مات سابق فقد",
        "الآن الان جديد بدل تغير انتقل منذ اليوم غير",
        "ينا فبر مار أبر ماي يون يول أغس سبت أكت نوف ديس",
        "واحد اثنان/اثنين ثلاثة/ثلاث أربعة/أربع خمسة/خمس ستة/ست سبعة/سبع ثمانية/ثمان تسعة/تسع"
        " عشرة/عشر",
    ),
    "persian": Claims(
        "نه نیست نیستم ندارم ندارد هیچ هرگز بدون نمی نبود نیستند ندارند",
        "دیگر فروخت تمام لغو مرد سابق ترک",
        "اکنون الان حالا جدید جای تغییر نقل از امروز",
        "ژان فور مار آور مه ژوئن ژوئی اوت سپت اکت نوا دسا",
        "یک دو سه چهار پنج شش هفت هشت نه ده یازده دوازده",
    ),
    "hebrew": Claims(
        "לא אין בלי אל אף איני אינני אינו אינה שום מעולם",
        "יותר הפסקתי מכרתי נגמר סיימ ביטל נפטר לשעבר אבד עזב",
        "עכשיו חדש חדשה במקום שינ עבר מאז היום",
        "ינו פבר מרץ אפר מאי יוני יולי אוג ספט אוק נוב דצמ",
        "אחד/אחת שניים/שתיים/שני/שתי שלוש/שלושה ארבע/ארבעה חמש/חמישה שש/שישה שבע/שבעה שמונה"
        " תשע/תשעה עשר/עשרה",
    ),
    "hindi": Claims(
        "नहीं नही न मत बिना कभी",
        "छोड़ बेच खत्म समाप्त रद्द पूर्व खो",
        "अब नया नई बजाय बदल से आज",
        "जनवरी फरवरी/फ़रवरी मार्च अप्रैल मई जून जुलाई अगस्त सितंबर/सितम्बर"
        " अक्टूबर/अक्तूबर नवंबर/नवम्बर"
        " दिसंबर/दिसम्बर",
        "एक दो तीन चार पांच/पाँच छह/छः सात आठ नौ दस ग्यारह बारह",
    ),
    "nepali": Claims("छैन होइन नाइँ बिना न", "छोड बेच", "अहिले नयाँ"),
    "armenian": Claims("ոչ չեմ չէ չի չունեմ առանց երբեք", "", "հիմա նոր"),
    "tamil": Claims("இல்லை அல்ல வேண்டாம் இல்லாமல்", "", "இப்போது புதிய"),
}
"""By the names of `languages.LANGUAGES`."""

RUNS_NO = "不 没 沒 无 無 非 未 别 別 ない なく なかっ ません ずに いいえ 안 않 못 없 아니 말고 ไม่"
"""Negations in scripts that are written without spaces, and in Korean."""

RUNS_OVER = "了 再 卖 賣 停 取消 辞 辭 離 やめ 売っ 終わ 그만 팔았 끝 เลิก ขาย"
RUNS_NOW = "现在 現在 改 换 換 搬 新 今 引っ越 変わ 変更 이제 지금 새 바뀌 이사 ตอนนี้ ใหม่ ย้าย"

RUN_DIGITS = {sign: value for value, sign in enumerate("〇一二三四五六七八九")} | {"两": 2, "兩": 2}
"""Chinese and Japanese numerals below ten; `十` is ten."""
