"""The languages that search tells apart, and what little it knows of each.

`words` are function words and the words of questions: they show which language a sentence is in,
and a question is searched without them. `letters` are those beyond a to z. `stemmer` is the name
of a Snowball algorithm. Where none does it well, an ending and beginnings are taken off; `weak`
letters are those that come and go within a word (Arabic مفتاح, "key", has the plural مفاتيح).
Where `compounds` is set, several nouns are written as one word. `written_out` are letters for which
two others are typed as well, where the stemmer does not know that. Chinese, Japanese, Korean, Thai,
Lao, Khmer and Burmese need no entry: they are searched by n-grams.
"""

from __future__ import annotations

from msgspec import Struct

ENGLISH = "english"


class Language(Struct, frozen=True):
    """Words and letters are separated by spaces; a range of letters is written `а-я`."""

    words: str = ""
    letters: str = ""
    stemmer: str = ""
    compounds: bool = False
    written_out: str = ""
    endings: str = ""
    beginnings: str = ""
    weak: str = ""


_CYRILLIC = "а-щ ь ю я"

LANGUAGES = {
    ENGLISH: Language("""
        a about above after again against all am an and any are aren as at be because been
        before being below between both but by can cannot could couldn d did didn do does
        doesn doing don down during each few for from further had hadn has hasn have haven
        having he her here hers herself him himself his how i if in into is isn it its
        itself just ll m me might more most must my myself need no nor not now of off on
        once only or other our ours ourselves out over own re s same shall shan she should
        shouldn so some such t than that the their theirs them themselves then there these
        they this those through to too under until up us ve very was wasn we were weren what
        when where which while who whom whose why will with won would wouldn you your yours
        yourself yourselves also y say says said saying tell tells told mention mentions
        mentioned talk talks talked know knows got get gets
    """),
    "german": Language(
        """
        aber alle als also am an auch auf aus bei beim bin bis bist da das dass dein deine
        dem den der des die dies diese dieser dir doch du durch ein eine einem einen einer
        eines er es euer für gab gegen gibt habe haben hat hatte hatten hast ich ihm ihn
        ihnen ihr ihre im in ist ja kann kein keine können man mein meine meinem meinen
        meiner mich mir mit muss nach nicht noch nun nur ob oder ohne schon sehr seit sein
        seine sich sie sind so soll sollte über um und uns unser unsere unserem unseren
        unter vom von vor wann war waren warum was welche welchem welchen welcher welches
        wem wen wenn wer werden wessen wie wieder wieviel will wir wird wo woher wohin wurde
        würde wurden zu zum zur
        """,
        "ä ö ü ß",
        stemmer="german",
        compounds=True,
    ),
    "dutch": Language(
        """
        aan al alle als ben bent bij dan dat de den der deze die dit doen dus door een en er
        ge geen had hadden hebben hebt heb heeft hem het hij hoe hoeveel hun ik in is je jij
        jou jouw kan kunnen maar me meer men met mij mijn moet na naar niet nog nu of om
        omdat ons onze ook op over reeds te toen toch uit uw van veel voor waar waarom
        wanneer waren was wat we wel welk welke werd wie wij wil worden wordt zal ze zei
        zich zij zijn zo zou
        """,
        "ë ï é",
        stemmer="dutch",
        compounds=True,
    ),
    "swedish": Language(
        """
        alla att av blev bli blir både de dem den denna deras dess det detta dig din dina
        ditt du där efter ej eller en er era ett från för ha hade han hans har henne hennes
        hon honom hur här i icke igen inte ja jag jo kan kunde man med mellan men mig min
        mina mitt mot mycket ni nu när någon något några och om oss på sedan sig sin sina
        sitt skall ska skulle som så till under ut utan vad var vara varför varifrån vars
        vart vem vems vi vid vilka vilken vilket vår våra vårt är
        """,
        "å ä ö",
        stemmer="swedish",
        written_out="å=aa ä=ae ö=oe",
        compounds=True,
    ),
    "danish": Language(
        """
        af alle at blev blive bliver da de dem den denne der deres det dette dig din dine
        dit dog du efter eller en end er et for fra få får ham han hans har havde have hende
        hendes her hun hvad hvem hvilke hvilken hvilket hvis hvor hvordan hvorfor hvornår i
        ikke ind jeg jer jeres kan kunne man med meget men mig min mine mit mod må ned nogen
        noget nogle nu når og også om op os over på selv sig sin sine sit skal skulle som så
        til ud under var ved vi vil ville vor vores være været
        """,
        "å æ ø",
        stemmer="danish",
        written_out="å=aa ø=oe",
        compounds=True,
    ),
    "norwegian": Language(
        """
        alle at av ble bli blir da de dem den denne der deres det dette deg din dine ditt du
        eller en enn er et etter for fra få får ham han hans har hadde hatt ha henne hennes
        her hun hva hvem hvilke hvilken hvilket hvis hvor hvordan hvorfor i ikke inn jeg kan
        kunne man med meg men min mine mitt mot må når nå noe noen og også om opp oss over
        på seg selv sin sine sitt skal skulle som så til ut under var ved vi vil ville vår
        våre vårt være vært
        """,
        "å æ ø",
        stemmer="norwegian",
        written_out="å=aa ø=oe",
        compounds=True,
    ),
    "spanish": Language(
        """
        a al algo ante antes aquí así aún ayer cada como cómo con contra cual cuál cuáles
        cuando cuándo cuánta cuántas cuánto cuántos de del desde donde dónde dos e el él
        ella ellas ellos en entre era eran eres es esa ese eso esta está están este esto
        estos estaba ha había han has hasta hay he la las le les lo los más me mi mis mucho
        muy nada ni no nos nosotros nuestra nuestras nuestro nuestros o os otra otro para
        pero por porque qué que quién quien se sea ser si sí sido sin sobre son soy su sus
        también te tengo tenía tiene tienen tu tus tú un una unas uno unos usted ustedes y
        ya yo fue fueron hace
        """,
        "á é í ó ú ñ ¿ ¡",
        stemmer="spanish",
    ),
    "portuguese": Language(
        """
        a ao aos aquela aquele aqui as às até com como da das de dela dele delas deles
        depois do dos e é ela elas ele eles em entre era eram essa esse esta está estão
        estava este eu foi foram há isso isto já lhe lhes mais mas me mesmo meu meus minha
        minhas muito na não nas nem no nos nós nossa nossas nosso nossos num numa o onde os
        ou para pela pelas pelo pelos por porque porquê qual quais quando quanta quantas
        quanto quantos que quê quem são se sem ser seu seus só sou sua suas também te tem
        têm tenho teu teus tinha tu tua tuas um uma umas uns você vocês
        """,
        "á â ã à é ê í ó ô õ ú ç",
        stemmer="portuguese",
    ),
    "italian": Language(
        """
        a abbiamo ad agli ai al alla alle allo anche avere aveva avevo ben c che chi ci cioè
        col come con cosa cui da dagli dai dal dalla dalle dei del dell della delle degli
        dello di dove dov e è ed era erano fa fra gli ha hai hanno ho i il in io l la le lei
        li lo loro lui ma me mi mia mie miei mio ne nei nel nell nella nelle nello no noi
        non nostra nostre nostri nostro o per perché più può qual quale quali quando quanta
        quante quanti quanto quel quella quelle quelli quello questa queste questi questo
        qui sarà se sei si sia sono sta stata state stati stato su sua sue sui sul sulla suo
        suoi te ti tra tu tua tue tuo tuoi un una uno vi voi
        """,
        "à è é ì ò ù",
        stemmer="italian",
    ),
    "french": Language(
        """
        a à ai as au aux avec avez avons avait avoir c ça car ce ces cet cette chez comme
        comment combien d dans de des donc dont du elle elles en es est et été était étaient
        êtes être eu eux fait il ils j je l la là le les leur leurs lui m ma mais me même
        mes moi mon n ne nos notre nous on ont ou où par pas plus pour pourquoi qu quand que
        quel quelle quelles quels qui quoi s sa sans se sera ses si son sont suis sur t ta
        te tes toi ton très tu un une va vos votre vous y
        """,
        "à â æ ç é è ê ë î ï ô œ ù û",
        stemmer="french",
    ),
    "catalan": Language(
        """
        a al als amb aquest aquesta això com de del dels des el ell ella ells els en entre
        era és està ha han hi i jo la les li m ma mateix meu meva meves meus més molt no
        nostra nostre o on per però perquè què qual quan quant quants que qui quin quina
        quins s seu seva si són sobre també te té teu teva tinc tu un una uns va vaig van
        """,
        "à ç é è í ï ó ò ú ü",
        stemmer="catalan",
    ),
    "romanian": Language(
        """
        a acea aceasta această acest aceste acestea acesta ai al ale am are ar as au avea
        aveam avem că când câte câți cât care ce cea cel cele cei cine către cu cum cumva da
        dar de despre din după e ea ei el ele era erau este eu fi foarte fost i îi îl în
        într într-un la le lor lui m mă mai mea mei mele meu mi ne nici noastră noastre noi
        noștri nostru nu o ori pe pentru prin s sa sau să se și sunt spre sub ta tău te ti
        tot tu un unde unei unui va voi vom vor
        """,
        "ă â î ș ț ş ţ",
        stemmer="romanian",
    ),
    "polish": Language(
        """
        a aby albo ale bardzo bez był była było były będzie być bo by chodzi ci ciebie co
        czy czego czym dla do gdy gdzie go i ich ile im ja jak jaka jaką jaki jakie jakich
        jakim jako jego jej jest jestem jeszcze jeśli już każdy kiedy kim kogo komu która
        które którego której który których którym kto ku ma mają mam mamy masz mi mną mnie
        moi moja moją moje mojego mojej mój może my na nad nam nas nasi nasz nasza nasze
        naszego naszej nie niż o od on ona one oni oraz po pod przed przez przy są się skąd
        swój ta tak także tam te tego tej ten to tu twoja twoje twój ty tym tylko u w we
        więc wy z za ze żeby
        """,
        "ą ć ę ł ń ó ś ź ż",
        stemmer="polish",
    ),
    "czech": Language(
        """
        a aby ale ani asi bude budu by byl byla bylo byli být co čeho či do ho i já jak jaká
        jaké jakého jakou jaký je jeho její jejich jen ještě jestli již jsem jsi jsme jsou k
        kam kde kdo kdy když kolik komu která které kterého který kterých ke koho má mají
        mám máme máš mě mezi mi mně moje moji můj my na nad náš naše našeho naši ne nebo
        není než o od on ona oni ono po pod podle pro proč proto protože před přes při s se
        si své svůj ta tak také tam tě ten tento této ti to toho tom tu tvoje tvůj ty u už v
        vám vás ve však vy z za ze že
        """,
        "á č ď é ě í ň ó ř š ť ú ů ý ž",
        stemmer="czech",
    ),
    "slovak": Language(
        """
        a aby aj ako aká aké akú aký ale alebo bol bola boli bolo bude budem by byť čo do ho
        i ich im ja je jeho jej kam kde kedy keď kto koľko komu ktorá ktoré ktorého ktorý
        ktorých len ma má majú mám máme mi mne moja moje moji môj my na nad nám nás náš naša
        naše nie nič o od on ona oni pod podľa pre prečo pred pri s sa si sme som sú svoj ta
        tak tam tej ten tento to toho tom tu tvoja tvoj ty u už v vám vás vo však vy z za zo
        že
        """,
        "á ä č ď é í ĺ ľ ň ó ô ŕ š ť ú ý ž",
        stemmer="czech",
    ),
    "serbian": Language(
        """
        a ali bi bih bila bili bilo bio biti će da do dok ga gdje gde gdja i iako ih ili im
        ima imam imaju imamo iz ja je jedan jedna jer još jesam jesu jesi joj ju kad kada
        kako kakav kakva kakve koja koje kojeg kojem koji kojoj ko tko koga kod koliko kroz
        li me meni mene mi mu moj moja moje na nad naš naša naše ne nego neki nije nisam
        nisu ništa njega njen njih o od oko on ona one oni pa po pod prema pri s sa sam samo
        se smo sta su svi svoj šta što ta taj tako te ti to toga tu tvoj tvoja u uz vaš već
        vi za zašto а али би био била да до где и из им има имам је јер ко кад када како
        која које који код колико ли ме мени ми мој моја моје на наш наша не није од он она
        они по са сам се смо су та тај то у шта што за зашто
        """,
        "č ć đ š ž а-и к-ш ђ ј љ њ ћ џ",
        stemmer="serbian",
    ),
    "russian": Language(
        """
        а без бы был была были было быть в вам вас во вот все всё вы где да для до его ее её
        ей ему если есть еще ещё ею же за зачем и из или им их к как какая какие какое какой
        какую кем ко когда кого кому кто куда ли мне меня мной мои моим моих мой моя моё
        моего моей мою мы на над нам нас наш наша наше наши не нет ни но о об он она они оно
        от откуда очень по под почему при про с сам свой своя себя со так также там тебе
        тебя то тогда того тоже той только том ты у уже чего чей чем что чтобы чьи это этого
        этот эта эти я сколько
        """,
        f"{_CYRILLIC} ъ ы э ё",
        stemmer="russian",
    ),
    "ukrainian": Language(
        """
        а або але без би був була були було бути в вам вас ви від він вона вони воно все де
        для до є за звідки з зі і й із їй її їм їх його йому коли ким кого кому котрий куди
        ледь лише мене мені ми мій моє моєї моя мої моїм моїх моєму на над нам нас наш наша
        наше наші не ні ну о об при про під після скільки свій своя себе та так також там
        тебе тобі те ти то того тому тут у уже хто це цей ця ці чи чий чиє чого чому що щоб
        як яка яке який які яким якого якої якій яку яких я
        """,
        f"{_CYRILLIC} є і ї ґ",
        endings="""
            ання еннями еннях ення ими ями ами ові еві єві ого ому ої ій ою ею єю ах ях
            ам ям ом ем єм ів їв ий их им ім ати яти ити іти ала яла ила али яли или ало
            яло ило ав яв ив ає ають ить ять а я о е є и і ї у ю й ь
        """,
        weak="і о е",
    ),
    "bulgarian": Language(
        """
        а аз ако ала бе беше без би бил била били бях в ви вие все във вече да до докато за
        защо и из или им има имам каза как каква какво какви какъв като кога когато които
        кой която което къде ли колко към ме мен ми между много мога може мой моя моето
        моите му на над най нас наш наша не него нея ни ние нито но някой о от откъде по под
        при с са сам само се си съм със сме сте та така там те тези ти то това този тази тук
        тя у ще что
        """,
        f"{_CYRILLIC} ъ",
        endings="""
            ищата овете ините ията ите ата ята ото ето ове ища ът ят та то те ия ии ях
            ах ха ше ам им ем а я о е и й ъ у
        """,
    ),
    "greek": Language(
        """
        αν από απο αυτά αυτή αυτό αυτός για γιατί δε δεν εγώ εδώ εί είμαι είναι είχα είχε
        εκεί εμείς έναν ένα ένας έχει έχεις έχουμε έχουν έχω η ή ήταν θα και κι κατά με μέσα
        μα μας μετά μη μια μία μου μπορώ να ο οι όμως όπως όταν ότι πια ποια ποιες ποιά ποιο
        ποιοι ποιος ποιον ποιους πόσα πόση πόσο πόσοι πότε που πού προς πως πώς σας σε στα
        στη στην στις στο στον στους στου σου τα τη την της τι τις το τον του τους των ως
        """,
        "α-ω ά έ ή ί ό ύ ώ ς",
        stemmer="greek",
    ),
    "turkish": Language(
        """
        acaba ama ancak artık aslında az bana bazı belki ben benden beni benim bile bir biri
        biz bize bizi bizim bu bunu bunun burada çok çünkü da daha de değil diye en fakat
        gibi göre hangi hangisi hani hem hep her için içinde ile ise kaç kadar ki kim kime
        kimin mi mı mu mü nasıl ne neden nelerdi nerede nereden nereye neydi niçin niye o
        olan olarak oldu olduğu on ona onlar onu onun orada oysa sana sen seni senin sey siz
        sizin şey şu tüm var vardı ve veya ya yani yok zaman
        """,
        "ç ğ ı ö ş ü",
        stemmer="turkish",
    ),
    "finnish": Language(
        """
        ja ei eikä ehkä eli en et että hän hänen he heidän heille heillä hei joka jolla
        joiden jos jo jota johon josta jotka kanssa kenen ketkä kuin kuinka kuka kun me
        meidän meille meillä mihin mikä mikään millainen millä milloin miltä minkä minua
        minulla minulle minun minut minä mistä missä mitkä mitä miksi mutta myös ne niiden
        niin nyt ole oli olen olet olette olivat olla on ovat paljonko se sen sille sillä
        sinulla sinun sinä sitä siis tai te teidän tämä tämän tuo vai vaan vain voi vielä
        """,
        "ä ö",
        stemmer="finnish",
        compounds=True,
    ),
    "estonian": Language(
        """
        aga ega ei et ja jah juba kas kes kelle kellel kui kuhu kuidas kus kust ka kuni kõik
        ma me mida miks millal millega mille mina minu mind mis mitu meie mul mulle mu ning
        no nad nii nüüd oli olid olen oled olema on oma pole sa see seda selle siis sina
        sinu seal siin ta te teie tema tal temal või veel
        """,
        "ä õ ö ü š ž",
        stemmer="estonian",
        compounds=True,
    ),
    "hungarian": Language(
        """
        a abban ahogy aki alá az azt azok azért be csak de e egy egyik ebben el én és ennek
        erre ez ezt fel hány hányas ha hát hogy hogyan hol hova honnan ide igen így is itt
        ki kik kinek kit le legyen lesz lett maga már még meg melyik mely mert mi miért mik
        mikor milyen minden mint mit most mondta nagyon nekem neki nekünk nem ne ő ők őt
        olyan ott pedig s se sem szerint te tehát ti úgy után vagy vagyok van vannak vele
        volt voltam voltak voltunk mennyi mennyit
        """,
        "á é í ó ö ő ú ü ű",
        stemmer="hungarian",
        compounds=True,
    ),
    "lithuanian": Language(
        """
        ant apie ar arba bet bei bus buvo buvau būti dabar dar dėl gal iš į ir jai jam jau
        jeigu ji jie jis jo jos jų jums juos kada kai kaip kam kas kieno kiek ko kodėl kokia
        koks kokie koki kur kuri kuris man mano manęs mane mes mūsų ne nei nes nėra nuo o
        per po prie su savo tai taip tau tavo tave ten tik to toks tu turi turiu už yra
        """,
        "ą č ę ė į š ų ū ž",
        stemmer="lithuanian",
    ),
    "indonesian": Language(
        """
        ada adalah akan aku anda apa apakah atas atau bagaimana bahwa banyak beberapa belum
        berapa bisa bukan dalam dan dari dengan di dia hanya harus hingga ia ini itu jadi
        jika juga kami kamu kapan karena ke kepada kita lagi lebih maka mana masih mengapa
        mereka milik nya oleh pada pernah punya saat saja sama sampai sangat saya sebagai
        sebelum sedang sejak seperti serta setelah siapa sudah supaya tapi telah tentang
        terhadap tersebut tetapi tidak untuk yaitu yang
        """,
        stemmer="indonesian",
    ),
    "vietnamese": Language(
        """
        ai ấy anh bạn bao bằng bị bởi các cái cho chúng có của cũng cùng cứ đã đang đâu đây
        để đến đi điều do đó được em gì hay hoặc họ khi không là lại làm mà mình một nào này
        nên nếu ngay người nhiêu những như nhưng nó nữa ở phải qua ra rằng rất rồi sao sau
        sẽ ta tại tên theo thì tôi trên trong trước từ và vào vẫn vậy về vì với vừa
        """,
        "à á ả ã ạ ă ằ ắ ẳ ẵ ặ â ầ ấ ẩ ẫ ậ è é ẻ ẽ ẹ ê ề ế ể ễ ệ ì í ỉ ĩ ị ò ó ỏ õ ọ ô ồ ố ổ ỗ ộ ơ"
        " ờ ớ ở ỡ ợ ù ú ủ ũ ụ ư ừ ứ ử ữ ự ỳ ý ỷ ỹ ỵ đ",
    ),
    "arabic": Language(
        """
        أبي أو أي أين إذا إلى إن أن أنا أنت التي الذي الذين الى اليوم ام أم ان او اين به بها
        بعد بين تلك ثم حتى حين ذلك سوف عن عند عندي على عليه عليها في فيه فيها قبل قد كان
        كانت كل كم كما كيف لا لدى لدي لقد لك لكن لم لماذا لن له لها لهم لي ليس ما ماذا مع من
        منذ منه منها متى نحن هذا هذه هل هم هما هنا هناك هو هي و يا يكون
        """,
        "ء-غ ف-ي",
        endings="تكم تنا تها تهم كما هما ها نا كم هم هن ات ان ون ين ية ته تي تك ه ة ي ك ت",
        beginnings="وبال وال بال كال فال ولل لل ال و",
        weak="ا و ي",
    ),
    "persian": Language(
        """
        آن آنها از است اش اگر ام این اند او با باید بر برای به بود بودم بودند تا تو چرا چند
        چه چقدر چگونه چیست خود خیلی در دارد دارم داریم را شد شده شما که کجا کجاست کدام کی
        کیست ما مال من می نیست نه هم همه هر و ولی وقتی یا یک های هایی
        """,
        "آ ء ا-غ ف ق ل-و پ چ ژ گ ک ی",
        stemmer="persian",
    ),
    "hebrew": Language(
        """
        אבל או אולי אותה אותו אותי אותך אותם אז אי איזה איזו אילו אין איפה איך אל אלה אם
        אנחנו אני אף אשר את אתה אתם בו בה בין גם דרך הוא היא היה היו הייתי הם הן הזה הזאת
        זאת זה זו יש כאן כבר כי כל כמה כמו כן לא לאן לה להם לו לי לך לנו למה לפני מאוד מאין
        מאיפה מאיזה מאיזו מה מי מתי מן על עד עוד עכשיו עם פה רק שם של שלה שלהם שלו שלי שלך
        שלנו תחת
        """,
        "א-ת",
        endings="יהם יהן ינו יכם אות יות ים ות ית יה תי נו כם הם ה ת י ך ו",
        beginnings="ו ה ש ב ל מ כ",
        weak="ו י",
    ),
    "hindi": Language(
        """
        अपना अपनी अपने अब आप आपका आपकी आपके इस इसका इसके इसी उन उनका उनकी उनके उस उसका उसकी
        उसके एक ऐसा और कब कभी कर करता करना करने का काफी कि कितना कितनी कितने किया किस किसका
        किसकी किसके किसने किसी किसे की कुछ के को कोई कौन कौनसा क्या क्यों गया जब जहाँ जो तक
        तब तुम तुम्हारा तुम्हारी तो था थी थे दिया ने नहीं पर पास बहुत भी मुझे में मेरा मेरी
        मेरे मैं मैंने यह यहाँ या ये लिए वह वहाँ वाला वाली वाले वे से हम हमने हमारा हमारी
        हमारे हमें ही हुआ हुई हुए हूँ है हैं हो होता होना कहाँ कैसा कैसी कैसे
        """,
        "ऀ-ॿ",
        stemmer="hindi",
    ),
    "nepali": Language(
        "म मेरो हाम्रो तिमी उनी छ छन् थियो हो के कहाँ कहिले किन कति कसको कुन कसरी लाई बाट मा ले र पनि",
        "ऀ-ॿ",
        stemmer="nepali",
    ),
    "armenian": Language(letters="ա-և", stemmer="armenian"),
    "tamil": Language(letters="அ-ஹ", stemmer="tamil"),
}
"""By name, the likelier first where nothing else decides."""
