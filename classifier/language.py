"""Is a question in a language that an English embedder can read?

Prevents confident nonsense: an English model gives a vector for any text, and near chance is what its classifier makes
of a Polish one. Script first, then function words, which no sentence does without; a fragment that holds none of any
language counts as English. Words that English has as well ("die", "an", "was") are in no other language's list.

No list is whole: a question of five words and more, asked as a sentence (with its mark, without commas), that holds no
function word of English at all is in another language. English sheds them in notes, hardly ever in sentences.
"""

from __future__ import annotations

import re

from classifier.neutral import folded

_WORD = re.compile(r"[^\W\d_]+")
_LATIN_LIMIT = 0x0250
_FOREIGN_LETTER = re.compile(r"[äöüßàâçéèêëîïôûùÿœæñáíóúõãåøąćęłńśźżčďěňřšťůýžğışőűțșăđāēīūķļņģųėįŵŷ]")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ENGLISH = _words(
    "a about after all also an and any are as at be been before but by can could did didn't do does don't each "
    "every for from get give got had has have he her here his how i i'm if in into is isn't it it's its let "
    "list many may me might more most much must my need no not of off on only or other our out over per please "
    "same shall she should show so still tell than that the their them then there these they this those to too "
    "under up us was we were what when where which who whom whose why will with would yet you your"
)
# Function words of German, Dutch, Swedish, Danish, Norwegian, French, Spanish, Portuguese, Italian, Romanian, Polish,
# Czech, Turkish, Hungarian, Finnish, Indonesian, and Vietnamese without its marks.
_OTHERS = _words(
    "ab abbiamo als apa att au auch auf aus aux av avec avons az bagaimana beim berapa bij bir bizi bizim bu "
    "care ce ces cette che chi cho co combien comment como cua cum cuál cuáles cuándo cuánto cuántos czy cómo "
    "dan dans darf dari das dass debe degli dei del della delle dem dengan der det deve deze değil din dit dla "
    "dlaczego doit dos dove du dónde een egy ei ein eine einem einen einer elle elles em est este está et foi "
    "fue för für gdzie gli haben hangi hanno hay hebben heeft het hoe hogy hol hur hvad hvor hvordan ich ikke "
    "ile ils ini inte ist itu için jak jaka jaki jakie jaký je jeg jest jsou kadar kami kan kann kapan kaç kde "
    "kdy ke khong kiedy kim kita která které který kto która które który których kuka kunnen las les leur lo "
    "los mai mais med melyik mengapa mijn mikor mikä milloin missä mit miten miért moet może mu muss mü mı naar "
    "nach nas nasz nasze naszej naszych nasıl naše nebo neden nel nella nem nerede nicht nie niet noch non nos "
    "nossa nosso nostra nostro notre nous nu nuestra nuestro nur náš não när och od oder og olan onde ont onze "
    "ook oraz ou ovat où par para pas pentru perché peut più po pode pour pourquoi pro proč przez puede può på "
    "quais qual quale quali quand quando quanti quanto que quel quelle quelles quels quem qui quién quoi qué "
    "sau seu siapa sie sind się som sono sonra sont su sua sunt sur sus são sí są tem tidak tiene tienen tutte "
    "uit uma una und unde une unser unsere unserer untuk vad var ve vilka vilken von voor votre vous vår våra "
    "waar waarom wann wanneer warum welche welchen welcher welches welke wenn wer werden wie wij wir wird wo "
    "wordt yang yok zijn zu zum zur är è és önce že"
)
# Likewise of Latvian, Lithuanian, Welsh, Catalan, Albanian, Tagalog, Swahili and Basque, and more of Dutch, Portuguese
# and Romanian. None stands in English questions, but for some name.
_MORE_OTHERS = _words(
    "ainda akin aking ako amb ano antes aprova aquest aquesta aquí ar ba bakit beth ble cada cand cate cik cilat "
    "cili cine când cât câte daca dacă dago dar daude ddim dhe dira ditu ditë drie dut egin eles els estão eta "
    "faint fica gali galiu gallaf gan gani gennyf gure heb hii hoeveel hun huu ik ilang inainte ir iš jaar janë "
    "jau jullie kad kada kailan kaip kam kanë kas katika kiek kodėl kokia koks kost kur kuris kurš kush kwa kāda "
    "kādi kāds kāpēc ką langu lini mae mano mele meu meus meva mga minha minhas moeten mums mund më mēs mūsu mūsų "
    "naiz namin nani natin ng nga ngapi ni ninawezaje nini nire një noastre noastră nog noiz nola nork nostru nuk "
    "nós oes paano pela pelo poate posso preciso pryd pse puc puwede pwy për quan quantas quantes quantos quants "
    "quin quina reikia sa saan sino sut sydd tas tenho tonë trebuie të uz už vai varu você vocês vēl wa wangu "
    "wapi wat worden yangu ydy yetu yn yr yra za zaizkit zein zenbat zou çfarë është înainte šiemet šo"
)
_WEAK = _words("al con da den des di do el en es il la le na per por se si son un van")
"""Words of other languages that names and trade terms bring into English; they count half, and never alone."""


_SENTENCE_WORDS = 5


def reads_as_english(text: str) -> bool:
    """Say whether the text is English, or so short of function words that nothing speaks against it."""
    lowered = folded(text)
    letters = [character for character in lowered if character.isalpha()]
    if not letters:
        return True
    if sum(ord(letter) >= _LATIN_LIMIT for letter in letters) > 0.3 * len(letters):
        return False
    words = _WORD.findall(lowered)
    english = sum(word in _ENGLISH for word in words)
    if not english and len(words) >= _SENTENCE_WORDS and text.rstrip().endswith("?") and "," not in lowered:
        return False
    others = sum(word in _OTHERS or word in _MORE_OTHERS for word in words)
    weak = sum(word in _WEAK for word in words)
    marked = len(_FOREIGN_LETTER.findall(lowered)) / len(words) if words else 0.0
    foreign = others + (0.5 * weak if others or marked > 0.1 else 0.0) + min(4.0 * marked, 2.0)
    return foreign < (1.0 if others and not english else 1.5) or foreign <= english
