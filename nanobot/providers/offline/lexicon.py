"""Words the offline model knows something about: small, general lists, English and Chinese.

None of it names a fact. Which answer is given is decided by overlap (`recall`); these lists only
say that two different words may mean the same thing, and how little some words tell.
"""

from __future__ import annotations

# Each line: words that may stand for each other.
SAME = """
like love enjoy prefer favourite favorite fave fond best adore 喜欢 最喜欢 爱 最爱 偏爱 偏好 爱好
hate dislike detest loathe 讨厌 不喜欢 厌恶
colour color 颜色 色
name call 名字 姓名 叫 名叫 称呼
live reside home house address settle move city town country base 住 住在 地址 家 城市 搬到
work job occupation profession employ career company office 工作 职业 上班 公司 单位 做
born birthday birth bday 生日 出生
age old 年龄 岁 多大
car vehicle auto automobile 车 汽车
kid child children 孩子 小孩
mother mom mum 妈妈 母亲 妈
father dad 爸爸 父亲 爸
wife spouse partner 妻子 老婆 太太 爱人
husband spouse partner 丈夫 老公 爱人
film movie 电影
phone telephone mobile cell cellphone 电话 手机
email mail 邮箱 邮件
password passcode pin code passphrase 密码 口令
meeting appointment 会议 开会 预约
flight fly plane 航班 飞机
trip travel journey holiday vacation 旅行 旅游 假期
buy purchase 买 购买
school university college study 学校 大学 上学 读书 学
doctor physician gp 医生 大夫
boss manager supervisor 老板 上司 经理
bike bicycle cycle 自行车 单车
flat apartment 公寓
laptop computer pc 电脑 笔记本
wifi wi-fi internet network 网络 无线
start begin 开始
park leave 停 停在 停车
finish end deadline due 截止 期限 结束
talk speak language 语言 说 讲 会说
allergic allergy 过敏
eat meal food dish 吃 食物 饭 菜
drink beverage 喝 饮料
pet 宠物
girlfriend 女朋友
boyfriend 男朋友
read book novel 书 看书 阅读
from come origin native 来自
兄弟姐妹 sibling
sister 妹妹 姐姐
brother 弟弟 哥哥
son 儿子
daughter 女儿
key keys 钥匙
"""

# Each line: a kind, then things of that kind. A thing matches its kind, not the other things.
KINDS = """
colour: red blue green yellow black white purple orange pink grey gray brown teal violet turquoise
颜色: 红 蓝 绿 黄 黑 白 紫 橙 粉 灰 棕
pet: dog cat hamster parrot rabbit goldfish turtle puppy kitten 狗 猫 兔子 仓鼠 鹦鹉 乌龟 鱼
animal: dog cat hamster parrot rabbit goldfish turtle horse 狗 猫 兔子 马
family: mother father mom dad mum sister brother son daughter wife husband aunt uncle cousin
family: grandmother grandfather 妈妈 爸爸 妹妹 姐姐 弟弟 哥哥 儿子 女儿 妻子 丈夫
家人: 妈妈 爸爸 妹妹 姐姐 弟弟 哥哥 儿子 女儿 妻子 丈夫
sibling: sister brother 妹妹 姐姐 弟弟 哥哥
parent: mother father mom dad mum 妈妈 爸爸
child: son daughter 儿子 女儿
food: pizza sushi pasta rice bread fruit soup noodle cheese salad meat fish curry steak breakfast
food: lunch dinner vegetarian vegan allergic 火锅 面 饭 面条 饺子 水果 肉 早餐 午餐 晚餐 素食 过敏
drink: tea coffee beer wine juice water milk cola whisky 茶 咖啡 酒 水 果汁 牛奶 啤酒 绿茶 红茶
sport: football soccer tennis basketball swim run yoga climb hike golf 足球 篮球 网球 跑步 游泳
hobby: like paint read hike climb knit garden photography 喜欢 画画 阅读 摄影
music: jazz rock piano guitar violin drum band song classical 钢琴 吉他 小提琴 歌 音乐
instrument: piano guitar violin drum cello flute 钢琴 吉他 小提琴
car: park garage drive 停 停车 开车
job: nurse doctor teacher engineer baker lawyer designer student programmer developer driver chef
job: writer scientist accountant 护士 医生 老师 教师 工程师 律师 设计师 学生 程序员 司机 厨师
language: swedish finnish danish norwegian dutch polish turkish hindi greek hebrew czech
language: english french german spanish portuguese italian chinese japanese korean arabic russian
语言: 中文 英语 法语 德语 日语 韩语 西班牙语
weekday: monday tuesday wednesday thursday friday saturday sunday
diet: vegetarian vegan allergic eat 素食 过敏
"""

# Words that say little by themselves: an attribute, a very common verb.
WEAK = """
like love enjoy prefer favourite favorite fave fond best name call kind type sort number date time
place person people old year thing day one week today tomorrow morning evening new main full exact
from come follow 做 喜欢 最喜欢 爱 最爱 名字 姓名
叫 名叫 时间 日期 号码 号 人 年 月 日 天 最 东西 地方 种
"""
VERBS = """
live work play drive speak study eat drink buy go leave put keep park take get make do want need use
own give start finish move travel learn teach run read write fly see meet sit stay born talk
住 住在 工作 吃 喝 买 去 学 开 用 放 停 看 要 会 说
"""

# Whose something is: a fact about a sister answers no question about the person.
OWNERS = """
sister brother mother mom mum father dad wife husband partner son daughter kid child children baby
aunt uncle cousin grandmother grandma grandfather grandpa nephew niece girlfriend boyfriend friend
boss colleague coworker neighbour neighbor dog cat pet team family parent roommate flatmate teacher
妹妹 姐姐 弟弟 哥哥 妈妈 母亲 爸爸 父亲 妻子 丈夫 老公 老婆 太太 爱人 儿子 女儿 孩子 爷爷 奶奶
外公 外婆
朋友 女朋友 男朋友 老板 同事 邻居 狗 猫 宠物 叔叔 阿姨 老师 室友
"""

STOP = """
a an the of to in on at for with by and or but as is are was were be been being am do does did
have has had i me my mine we us our you your he she it its they them their his her this that these
those there here what who whom whose which when where why how can could would should will shall may
might must please tell know remember remind recall again currently now ever also just about user
nanobot said say told mention not no s t m re ve ll d if so any some than then what's who's where's
much many most
is isn't don't doesn't didn't i'm i've say hey hi ok okay forget forgot got anything
something everything really actually usually always often
"""

STOP_ZH = (
    "现在 目前 "
    "你还记得 你记得 还记得 你知道 知道 记得 告诉我 告诉 请问 什么地方 什么时候 哪个地方 什么 "
    "哪里 哪儿 哪个 哪天 哪一 哪部 哪种 哪本 哪首 哪位 哪些 哪家 "
    "哪 啥 谁 多少 怎么 为什么 几点 几号 几岁 几个 几 "
    "我的 我们 我 你 的 是 了 吗 呢 么 吧 啊 在 有 和 那 这 用户 "
    "等人 一下 请 把 被 也 都 就 还 很 到 不能 能 可以 不可以 不 一个 一只 一条 个 ， 。"
)

# Verbs in the present tense that open a plain statement about oneself.
HABITS = """
live work like love hate prefer drive own study speak play park eat drink use enjoy dislike collect
teach run sing dance paint write read practise practice ride cook grow wear support follow follow
commute weigh sleep wake travel swim hike climb cycle train volunteer manage lead attend
belong suffer
adore detest avoid share rent keep always never usually often mostly
"""
PAST_LIFE = "grew moved graduated married adopted"

IRREGULAR = {
    "children": "child", "kids": "kid", "wives": "wife", "people": "person", "men": "man",
    "women": "woman", "feet": "foot", "drove": "drive", "ate": "eat", "drank": "drink",
    "bought": "buy", "left": "leave", "went": "go", "spoke": "speak", "taught": "teach",
    "paid": "pay",
    "met": "meet", "made": "make", "took": "take", "kept": "keep", "gave": "give", "wrote": "write",
    "ran": "run", "flew": "fly", "flies": "fly", "came": "come", "grew": "grow", "began": "begin",
    "saw": "see", "lost": "lose", "slept": "sleep", "sold": "sell", "lives": "live",
    "sang": "sing", "rode": "ride", "wore": "wear", "swam": "swim", "sat": "sit", "hid": "hide",
    "favourite": "favorite", "colour": "color", "neighbour": "neighbor", "flavour": "flavor",
    "grey": "gray", "centre": "center", "theatre": "theater",
}  # fmt: skip

PAST = """
was had did went left got bought made met took came lost grew began saw told said sold kept found
won broke ran ate drank drove wrote spoke slept spent built taught thought brought put set cut hid
sat
sang rode wore flew gave knew felt held heard paid read lent swam fell chose forgot became cost let
hit quit hurt
"""
MODAL = """
can could will would should must may might cannot can't couldn't won't wouldn't shouldn't mustn't
"""

# States that pass: said in passing, they are not worth a line in a memory.
PASSING = """
tired hungry thirsty busy sure sorry fine ok okay good great well back here ready done afraid glad
happy sad bored confused late early lost cold hot sick stuck curious interested aware serious alone
kidding joking wondering asking looking trying going getting thinking just not still very so really
about almost also in on at out up off
"""
